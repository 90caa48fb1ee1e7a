"""A Slurm cluster on the hosts of a world: the controller on the launcher's machine, a node on each.

It is gone with the world. Used on the launcher's machine, as root:

    with slurm.Cluster(["a", "b"]) as cluster:
        subprocess.run(["srun", "--mpi=pmix", ...], env={**os.environ, **cluster.environment})
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import network

HOSTS = pathlib.Path(__file__).resolve().parent / "hosts"
TOOLS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel")

# Without systemd, cgroups and accounting; nodes may claim more CPUs than the machine has. TmpFS is private to each
# host, because mpi/pmix names its directory there only by the job.
CONFIGURATION = """\
ClusterName=hosts
SlurmctldHost={controller}({address})
AuthType=auth/munge
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS=/run
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=20
KillWait=5
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1,permit_job_expansion
{gpus}{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


class Missing(Exception):
    """A package of Slurm is not installed."""


class Cluster:
    def __init__(self, names, cpus=8, gpus=0, types=(), shards=0):
        """`gpus`: GPUs of each node; all are /dev/null, and divided evenly among `types`. `shards`: parts into
        which a GPU can be shared. Ordinary users may submit too."""
        for tool in TOOLS:
            if not shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin"):
                raise Missing(f"there is no {tool}: packaging/packages-test.txt names Slurm's packages")
        self.names = names
        # The nodes see the files too: all hosts share the world's /etc.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="slurm-", dir="/etc"))
        self.folder.chmod(0o755)
        each = gpus // max(1, len(types))
        resources = ",".join([f"gpu:{kind}:{each}" for kind in types] or [f"gpu:{gpus}"])
        resources += f",shard:{shards}" if shards else ""
        nodes = [
            f"NodeName={name} NodeAddr={network.address(index)} CPUs={cpus} State=UNKNOWN"
            + (f" Gres={resources}" if gpus else "")
            for index, name in enumerate(names)
        ]
        for index in range(gpus):
            (self.folder / f"gpu{index}").symlink_to("/dev/null")
        if gpus:
            lines = [
                f"Name=gpu {f'Type={kind} ' if kind else ''}"
                f"File={self.folder}/gpu[{index * each}-{index * each + each - 1}]\n"
                for index, kind in enumerate(types or [""])
            ]
            lines += [f"Name=shard Count={shards}\n"] if shards else []
            (self.folder / "gres.conf").write_text("".join(lines))
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        (self.folder / "state").mkdir(0o700)
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                controller=network.LAUNCHER,
                address=network.LAUNCHER_ADDRESS,
                folder=self.folder,
                gpus=f"GresTypes=gpu{',shard' if shards else ''}\n" if gpus else "",
                nodes="\n".join(nodes),
                names=",".join(names),
            )
        )

    def __enter__(self):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._start_munge(key, "launcher")
        for name in self.names:
            self._start_munge(key, name, HOSTS, "exec", name)
        self._run("slurmctld", "-c", "-f", self.folder / "slurm.conf")
        for name in self.names:
            (self.folder / f"spool.{name}").mkdir()
            self._run(HOSTS, "exec", name, "slurmd", "-c", "-N", name, "-f", self.folder / "slurm.conf")
        deadline = time.monotonic() + 200
        while (idle := self._idle()) < len(self.names):
            if time.monotonic() > deadline:
                raise OSError(f"only {idle} of Slurm's nodes came up; see {self.folder}/*.log")
            time.sleep(0.1)
        return self

    def _start_munge(self, key, name, *where):
        """Starts munged with its usual socket directory, in the machine's own /run."""
        files = [f"--{what}-file={self.folder}/munge.{name}.{what}" for what in ("pid", "log", "seed")]
        self._run(*where, "install", "-d", "-m", "755", "/run/munge")
        self._run(*where, "munged", "--force", f"--key-file={key}", *files)

    # Ends the cluster's processes now, because the world may live longer.
    def __exit__(self, *_):
        for path in self.folder.glob("*.pid"):
            try:
                os.kill(int(path.read_text()), 9)
            except (OSError, ValueError):
                pass

    def _run(self, *command):
        done = subprocess.run(
            [str(word) for word in command],
            env=self._environment(),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode != 0:
            raise OSError(f"{command[0]}: {done.stdout.strip()}")

    def _idle(self):
        done = subprocess.run(
            ["sinfo", "-h", "-t", "idle", "-o", "%D"],
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        return sum(int(word) for word in done.stdout.split())

    def _environment(self):
        return {
            **os.environ,
            **self.environment,
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        }
