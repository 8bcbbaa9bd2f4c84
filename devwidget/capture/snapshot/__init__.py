"""Reading one module tree for a snapshot: what each kind of module and tensor can be asked without waking anything."""
