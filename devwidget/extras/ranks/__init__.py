"""Many ranks: the agent in each process of a job, and who asks all of them at once."""
