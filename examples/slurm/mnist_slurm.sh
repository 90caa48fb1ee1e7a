#!/bin/bash -e
#SBATCH --job-name=mnist
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --time=00:30:00
#SBATCH -o %x-%j.out

# From this folder, in a login shell that knows the modulefiles:
#   module use $PWD/modulefiles
#   sbatch mnist_slurm.sh
N=$SLURM_JOB_NUM_NODES
echo "mnist on $N nodes: $SLURM_JOB_NODELIST"

module load Horovod

srun --mpi=pmix python train_mnist.py
