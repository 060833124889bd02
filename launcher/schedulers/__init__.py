"""Where this launcher stands in its job, by torchrun's options, Slurm, MPI or Kubernetes.

In: options and environment variables. Out: a `Placement`: the number of nodes, its own, node 0.
"""
