#!/usr/bin/env bash
# A Slurm cluster on the hosts of hosts.sh: the controller on h1, and a node on each. Needs slurm-wlm, and root, because
# slurmd does; no systemd, and no file of the machine's own Slurm. Slurm believes clients what they say about their user
# (auth/none): for tests only.
#
#   slurm.sh up N            makes h1 .. hN, and waits until all are idle
#   slurm.sh down            ends jobs, daemons and hosts
#   slurm.sh run COMMAND...  runs srun, sbatch, squeue, ... on h1
#   slurm.sh node HOST       starts the node of a host that was booted again, and waits until it is idle
#
# The folder of the cluster is $TROUPE_HOSTS.slurm, beside that of the hosts, or TROUPE_SLURM.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here hosts=$here/hosts.sh
export TROUPE_HOSTS=${TROUPE_HOSTS:-${TMPDIR:-/tmp}/troupe-hosts-$(id -u)}
readonly folder=${TROUPE_SLURM:-$TROUPE_HOSTS.slurm}
export SLURM_CONF=$folder/slurm.conf

fail() { echo "slurm.sh: $*" >&2; exit 1; }

# The cores of the machine as Slurm describes them. Fails unless SLURM_BINDS is set, on a machine with one core, and if this
# process may not use all of them: Slurm would choose among all.
cores_to_bind() {
  [ -n "${SLURM_BINDS:-}" ] && [ "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)" = "$(nproc --all)" ] &&
    slurmd -C | grep -o 'CPUs=.*ThreadsPerCore=[0-9]*' | grep -v ' SocketsPerBoard=1 CoresPerSocket=1 '
}

# A node that is silent counts as down after 5 s (SLURM_DEAD), and a job has 5 s between SIGTERM and SIGKILL
# (SLURM_KILL_WAIT). Jobs of the partition `urgent` preempt others, which have 4 s of grace and are requeued. A step has
# any time after the end of its first task (SLURM_WAIT_TIME, in seconds). Where there are cores to bind, a step has those of
# its job alone, and each task one of them unless its srun says otherwise.
configure() { # COUNT
  local binding=none cores=CPUs=4 found
  if found=$(cores_to_bind); then
    binding=affinity
    cores="$found CpuBind=core"
  fi
  cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=h1
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/$binding
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
MpiParams=ports=20000-20999
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
SlurmctldTimeout=10
SlurmdTimeout=${SLURM_DEAD:-5}
KillWait=${SLURM_KILL_WAIT:-5}
WaitTime=${SLURM_WAIT_TIME:-0}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=h[1-$1] $cores RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=4
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
END
  # Newer ones look for cgroups although no plugin uses them; that of Debian 12 does not know the word.
  case $(slurmd -V) in
    *" 22."*) ;;
    *) echo "CgroupPlugin=disabled" >"$folder/cgroup.conf" ;;
  esac
}

are_idle() { # NODES COUNT
  "$hosts" run h1 sinfo -h -n "$1" -o '%t %D' 2>/dev/null | grep -qx "idle $2"
}

wait_until_idle() { # NODES COUNT
  local end=$((SECONDS + 20))
  until are_idle "$1" "$2"; do
    [ $SECONDS -lt $end ] || fail "$1 is not idle after 20 s; see $folder/log"
    sleep 0.05
  done
}

up() { # COUNT
  local i
  [ "$(id -u)" = 0 ] || fail "slurmd must be root"
  [ ! -e "$folder" ] || fail "$folder exists already: slurm.sh down"
  "$hosts" up "$1"
  mkdir -p "$folder"/{state,spool,log}
  configure "$1"
  "$hosts" run h1 slurmctld -c -f "$SLURM_CONF"
  for i in $(seq "$1"); do
    mkdir -p "$folder/spool/h$i"
    "$hosts" run "h$i" slurmd -f "$SLURM_CONF"
  done
  wait_until_idle "h[1-$1]" "$1"
}

case "${1:-}" in
  up) up "$2" ;;
  down)
    "$hosts" down # Ends all daemons and tasks.
    rm -rf "$folder"
    ;;
  run) exec "$hosts" run h1 "${@:2}" ;;
  node)
    "$hosts" run "$2" slurmd -f "$SLURM_CONF"
    wait_until_idle "$2" 1
    ;;
  *)
    sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac
