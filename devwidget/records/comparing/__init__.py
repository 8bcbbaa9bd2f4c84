"""Records of two records: what is otherwise in the second."""
