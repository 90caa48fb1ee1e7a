#!/bin/bash -e
#SBATCH --job-name=gpus-per-task
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH -o %x-%j.out

# One rank for each task. Every rank sees all GPUs of the job on its node, and takes the one of its local rank.
#   sbatch gpus_per_task.sh
horovodrun python3 "$SLURM_SUBMIT_DIR/../torch_digits.py" --epochs 2
