"""For assistants: results in few characters, tools of the Jupyter server, and a trial of any edit."""
