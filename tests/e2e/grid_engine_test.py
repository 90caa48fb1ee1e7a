#!/usr/bin/python3 -B
"""Jobs under a real SGE (Debian's gridengine) of two hosts, in a root of that Debian."""

import roots
from harness import *

PACKAGES = ("gridengine-client", "gridengine-exec", "gridengine-master", "hostname", "iproute2", "passwd", "procps")

# The hosts are namespaces with their own network and name; a is the host of the master and the user.
CLUSTER = r"""
exec 2>&1
set -e
printf '127.0.0.1 localhost\n10.99.0.1 a\n10.99.0.2 b\n' >/etc/hosts
hostname a
ip link set lo up
ip link add to-b type veth peer name to-a
ip addr add 10.99.0.1/24 dev to-b
ip link set to-b up
unshare -n -u sleep 600 &
in_b="nsenter -t $! -n -u"
until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
ip link set to-a netns $!
$in_b hostname b
$in_b ip link set lo up
$in_b ip addr add 10.99.0.2/24 dev to-a
$in_b ip link set to-a up
export SGE_ROOT=/var/lib/gridengine
echo a >$SGE_ROOT/default/common/act_qmaster
install -d -o sgeadmin /run/gridengine
sge_qmaster
manager="runuser -u sgeadmin --"
until $manager qconf -ah b; do sleep 0.2; done
$manager qconf -ah a || true
$manager qconf -as a
sge_execd
$in_b env SGE_EXECD_PIDFILE=/run/gridengine/b.pid sge_execd
printf 'group_name @allhosts\nhostlist a b\n' >/hosts.conf
$manager qconf -Ahgrp /hosts.conf
for name in mpi make smp; do
  printf '%s\n' "pe_name $name" 'slots 99' 'user_lists NONE' 'xuser_lists NONE' 'start_proc_args NONE' \
    'stop_proc_args NONE' 'allocation_rule $round_robin' 'control_slaves TRUE' 'job_is_first_task FALSE' \
    'urgency_slots min' 'accounting_summary FALSE' 'qsort_args NONE' >/pe.conf
  $manager qconf -Ap /pe.conf
done
cat >/edit <<'END'
#!/bin/sh
sed -i 's/^hostlist.*/hostlist @allhosts/; s/^slots.*/slots 8/; s/^shell .*/shell \/bin\/sh/
  s/^pe_list.*/pe_list mpi/; s/^load_thresholds.*/load_thresholds NONE/' "$1"
touch -d '+5 seconds' "$1"
END
chmod 755 /edit
$manager env EDITOR=/edit qconf -aq all.q
useradd -m user
chmod u+s "$(command -v nsenter)"
cat >/on <<END
#!/bin/sh
[ "\$1" = a ] || enter="$in_b"
shift
exec \$enter "\$@"
END
cat >/home/user/job.sh <<END
#!/bin/sh
[ -z "\$PE_HOSTFILE" ] || cp "\$PE_HOSTFILE" /home/user/list
$LAUNCHER -np 2 hostname
sleep 300
END
chmod 755 /on /home/user/job.sh
user="runuser -u user -- env -C /home/user HOME=/home/user"
$user qsub -o /dev/null -j y -pe mpi 5 job.sh
$user qsub -o /home/user/serial -j y job.sh
$user qsub -o /dev/null -j y -t 1-2 job.sh
for try in $(seq 300); do
  [ "$($user qstat -s r | grep -c job.sh)" = 4 ] && [ "$(wc -l </home/user/serial)" = 2 ] && break
  sleep 0.1
done
for number in 1 3 99; do
  echo "= $number"
  $user JOB_ID=$number $LAUNCHER --launch-agent '/on {host}' $([ $number = 1 ] || echo -np 2) hostname
done
echo '= serial'
cat /home/user/serial
echo '= list'
cat /home/user/list
"""


def test_the_number_of_a_job_alone_reaches_its_hosts():
    if os.getuid() != 0 or not shutil.which("mmdebstrap"):
        raise Skip("a root with gridengine needs root and mmdebstrap")
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="e2e-", ignore_cleanup_errors=True) as path:
        root = pathlib.Path(path) / "root"
        # The installation resolves its own host name.
        named = 'echo "127.0.0.1 localhost $(hostname)" >"$1/etc/hosts"'
        roots.make_root(root, PACKAGES, is_kept=True, hooks=[named])
        roots.bring_libraries(root, LAUNCHER)
        script = f"LAUNCHER={LAUNCHER}\n{CLUSTER}"
        code, out = roots.run_on_another_debian(root, "unshare", "-n", "-u", "-i", "bash", "-c", script, seconds=200)
    jobs = dict(re.findall(r"(?m)^= (\w+)\n((?:[^=].*\n?)*)", out))
    listed = re.findall(r"(?m)^(\w) (\d) ", jobs.pop("list"))  # the file that SGE gives the job
    hosts = {name: sorted(re.findall(r"<stdout>:(\w)$", text, re.M)) for name, text in jobs.items()}
    expect(code == 0 and len(listed) == 2, out)
    expect(hosts.pop("1") == sorted("".join(host * int(slots) for host, slots in listed)), out)
    expect(hosts.pop("serial") in ([*"aa"], [*"bb"]) and "PE_HOSTFILE" not in jobs["serial"], out)
    expect(hosts == {"3": [*"aa"], "99": [*"aa"]}, out)
    for name, why in (("3", "it is an array"), ("99", "qstat lists no running job of yours with that number")):
        expect(f"SGE job {name}: PE_HOSTFILE is not set, and {why}" in jobs[name], out)
        expect("so all ranks run on this machine; name hosts with -H" in jobs[name], out)


if __name__ == "__main__":
    main()
