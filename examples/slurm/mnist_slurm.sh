#!/bin/bash -e
#SBATCH --job-name=mnist
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:30:00
#SBATCH -o %x-%j.out
# With GPUs, one for each task, remove the first # of the next line. Slurm refuses it on a cluster without GPUs.
##SBATCH --gpus-per-node=2

# From this folder: sbatch mnist_slurm.sh
# The script uses the python3 of the submitting shell. It needs PyTorch and horovod, which a module may provide: in a
# login shell with modules, `module use $PWD/modulefiles` adds the module of this folder.
echo "mnist on $SLURM_JOB_NUM_NODES nodes: $SLURM_JOB_NODELIST"

if [[ $(type -t module) == function ]] && module is-avail Horovod 2>/dev/null; then
  module load Horovod
fi

# Without Slurm's plugin for PMIx, ranks find each other by the variables of the step.
mpi=()
if srun --mpi=list 2>&1 | grep -qw pmix; then mpi=(--mpi=pmix); fi

srun "${mpi[@]}" python3 train_mnist.py
