"""DDPG with target networks and a replay buffer that knows a device."""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class ReplayBuffer:
    def __init__(self, state_dim, action_dim, device, max_size=64):
        self.max_size, self.ptr, self.size, self.device = max_size, 0, 0, device
        self.state = np.zeros((max_size, state_dim))
        self.action = np.zeros((max_size, action_dim))
        self.next_state = np.zeros((max_size, state_dim))
        self.reward, self.not_done = np.zeros((max_size, 1)), np.zeros((max_size, 1))

    def add(self, state, action, next_state, reward, done):
        self.state[self.ptr], self.action[self.ptr], self.next_state[self.ptr] = state, action, next_state
        self.reward[self.ptr], self.not_done[self.ptr] = reward, 1.0 - done
        self.ptr, self.size = (self.ptr + 1) % self.max_size, min(self.size + 1, self.max_size)

    def sample(self, batch_size):
        ind = np.random.randint(0, self.size, size=batch_size)
        return (
            torch.FloatTensor(self.state[ind]).to(self.device),
            torch.FloatTensor(self.action[ind]).to(self.device),
            torch.FloatTensor(self.next_state[ind]).to(self.device),
            torch.FloatTensor(self.reward[ind]).to(self.device),
            torch.FloatTensor(self.not_done[ind]).to(self.device),
        )


class Actor(nn.Module):
    def __init__(self, state_dim, action_dim):
        super().__init__()
        self.l1, self.l2 = nn.Linear(state_dim, 16), nn.Linear(16, action_dim)

    def forward(self, state):
        return torch.tanh(self.l2(F.relu(self.l1(state))))


class Critic(nn.Module):
    def __init__(self, state_dim, action_dim):
        super().__init__()
        self.l1, self.l2 = nn.Linear(state_dim + action_dim, 16), nn.Linear(16, 1)

    def forward(self, state, action):
        return self.l2(F.relu(self.l1(torch.cat([state, action], 1))))


class DDPG:
    def __init__(self, state_dim, action_dim, device, discount=0.99, tau=0.005):
        self.actor = Actor(state_dim, action_dim).to(device)
        self.actor_target = copy.deepcopy(self.actor)  #! wrong-device: self.actor_target = Actor(state_dim, action_dim)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-4)
        self.critic = Critic(state_dim, action_dim).to(device)
        self.critic_target = copy.deepcopy(self.critic)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), weight_decay=1e-2)
        self.discount, self.tau, self.device = discount, tau, device

    def select_action(self, state):
        state = torch.FloatTensor(state.reshape(1, -1)).to(self.device)  #! wrong-device: state = torch.FloatTensor(state.reshape(1, -1))
        return self.actor(state).cpu().data.numpy().flatten()

    def train(self, replay_buffer, batch_size=16):
        state, action, next_state, reward, not_done = replay_buffer.sample(batch_size)
        with torch.no_grad():
            target_Q = reward + not_done * self.discount * self.critic_target(next_state, self.actor_target(next_state))
        critic_loss = F.mse_loss(self.critic(state, action), target_Q)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        actor_loss = -self.critic(state, self.actor(state)).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        for net, target in ((self.critic, self.critic_target), (self.actor, self.actor_target)):
            for param, target_param in zip(net.parameters(), target.parameters()):
                target_param.data.copy_(self.tau * param.data + (1 - self.tau) * target_param.data)


device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
policy, replay_buffer, state = DDPG(3, 1, device), ReplayBuffer(3, 1, device), np.ones(3)
for t in range(6):
    action = (policy.select_action(state) + np.random.normal(0, 0.1, size=1)).clip(-1, 1)
    next_state = state + 0.1 * action
    replay_buffer.add(state, action, next_state, -np.abs(next_state).sum(), float(t == 5))
    state = next_state
    if t >= 3:
        policy.train(replay_buffer)
