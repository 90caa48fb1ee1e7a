#!/bin/bash -e
#SBATCH --job-name=one-task-per-node
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=2
#SBATCH --time=00:30:00
#SBATCH -o %x-%j.out

# Like a script for torchrun: the launcher starts the processes of a node. With -np, horovodrun starts one rank for each
# GPU.
#   sbatch one_task_per_node.sh
ranks=$((SLURM_NNODES * $(wc -w <<<"${SLURM_JOB_GPUS//,/ }")))
horovodrun -np "$ranks" python3 "$SLURM_SUBMIT_DIR/../torch_digits.py" --epochs 2
