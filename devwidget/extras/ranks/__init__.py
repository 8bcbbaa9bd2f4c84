"""Many ranks: the agent in each process of a job, and the queries to all of them."""
