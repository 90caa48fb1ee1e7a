#!/bin/bash -e
#SBATCH --job-name=heterogeneous
#SBATCH --nodes=1 --ntasks-per-node=1
#SBATCH --time=00:30:00
#SBATCH -o %x-%j.out
#SBATCH hetjob
#SBATCH --nodes=1 --ntasks-per-node=2 --gpus-per-node=2

# Two components, each with its own nodes and resources, form one job of three ranks.
#   sbatch heterogeneous.sh
horovodrun python3 "$SLURM_SUBMIT_DIR/../torch_digits.py" --epochs 2
