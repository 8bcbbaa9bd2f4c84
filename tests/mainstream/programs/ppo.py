"""PPO in the style of cleanrl, on a made-up vector of environments."""

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


class Walk:
    """Environments side by side: stay near the middle."""

    def __init__(self, number):
        self.number, self.rng = number, np.random.default_rng(0)

    def reset(self):
        self.place = self.rng.normal(size=(self.number, 4)).astype(np.float32)
        return self.place

    def step(self, action):
        self.place = self.place + 0.1 * (action[:, None] - 0.5).astype(np.float32)
        return self.place, -np.abs(self.place).mean(1), self.rng.random(self.number) < 0.1


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        self.actor = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


num_steps, num_envs, gamma, gae_lambda = 6, 4, 0.99, 0.95
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
envs = Walk(num_envs)
agent = Agent().to(device)
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)

obs = torch.zeros((num_steps, num_envs, 4)).to(device)
actions = torch.zeros((num_steps, num_envs)).to(device)
logprobs = torch.zeros((num_steps, num_envs)).to(device)
rewards = torch.zeros((num_steps, num_envs)).to(device)
dones = torch.zeros((num_steps, num_envs)).to(device)  #! wrong-device: dones = torch.zeros((num_steps, num_envs))
values = torch.zeros((num_steps, num_envs)).to(device)

next_obs = torch.Tensor(envs.reset()).to(device)
next_done = torch.zeros(num_envs).to(device)
for update in range(2):
    for step in range(num_steps):
        obs[step], dones[step] = next_obs, next_done
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(next_obs)
            values[step] = value.flatten()
        actions[step], logprobs[step] = action, logprob
        next_obs, reward, done = envs.step(action.cpu().numpy())
        rewards[step] = torch.tensor(reward).to(device).view(-1)
        next_obs, next_done = torch.Tensor(next_obs).to(device), torch.Tensor(done).to(device)  #! wrong-device: next_obs, next_done = torch.Tensor(next_obs), torch.Tensor(done).to(device)
    with torch.no_grad():
        next_value = agent.get_value(next_obs).reshape(1, -1)
        advantages = torch.zeros_like(rewards).to(device)
        lastgaelam = 0
        for t in reversed(range(num_steps)):
            following, nextnonterminal = (next_value, 1.0 - next_done) if t == num_steps - 1 else (values[t + 1], 1.0 - dones[t + 1])
            delta = rewards[t] + gamma * following * nextnonterminal - values[t]
            advantages[t] = lastgaelam = delta + gamma * gae_lambda * nextnonterminal * lastgaelam
        returns = advantages + values
    b_obs, b_actions, b_logprobs = obs.reshape(-1, 4), actions.reshape(-1), logprobs.reshape(-1)
    b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)
    b_inds = np.arange(num_steps * num_envs)
    np.random.shuffle(b_inds)
    for start in range(0, len(b_inds), 12):
        mb_inds = b_inds[start : start + 12]
        _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions.long()[mb_inds])
        ratio = (newlogprob - b_logprobs[mb_inds]).exp()
        mb_advantages = b_advantages[mb_inds]
        pg_loss = torch.max(-mb_advantages * ratio, -mb_advantages * torch.clamp(ratio, 0.8, 1.2)).mean()
        loss = pg_loss - 0.01 * entropy.mean() + 0.5 * ((newvalue.view(-1) - b_returns[mb_inds]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
