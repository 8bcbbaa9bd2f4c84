"""How full each device is, asked for without creating a context, allocating or waiting."""
