"""Watch torch while code runs: a function mode above autograd, a dispatch mode below it, and module hooks."""
