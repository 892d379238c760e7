"""From a call of `launch` to a Run: jobs and their knobs, options, the live launch, SLURM."""
