#!/usr/bin/env bash
# Hosts for tests and measurements, as namespaces of this machine: each has its own network interface, host name,
# processes and /dev/shm, and a cable to one switch. The network of the machine itself is neither seen nor changed. Needs
# iproute2, nftables, procps and util-linux. Works as root and, where user namespaces are allowed, without being root.
#
#   hosts.sh check                whether hosts can be made here: ends with 0, or prints why not and ends with 77 if the
#                                 kernel forbids it, with 1 if a program is missing
#   hosts.sh up N                 makes h1 .. hN with the addresses 198.18.0.1 .. 198.18.0.N
#   hosts.sh down                 ends all processes of all hosts and removes them
#   hosts.sh list                 the names of the hosts that are up
#   hosts.sh run HOST COMMAND...  runs the command there; it dies with the caller
#   hosts.sh cut|plug HOST        unplugs the cable at the switch, or plugs it in again
#   hosts.sh part A B             neither hears the other; all others hear both
#   hosts.sh mute A B             B does not hear A; A hears B
#   hosts.sh lose HOST PERCENT    this share of the packets from and to HOST is lost
#   hosts.sh heal                 ends all part, mute and lose
#   hosts.sh rate HOST MBIT       limits what HOST receives; 0: no limit
#   hosts.sh delay HOST MS        delays what HOST sends and receives, each way; 0: no delay
#   hosts.sh freeze|thaw HOST     stops all its processes, or continues them; its kernel still acknowledges
#   hosts.sh crash HOST           power loss: no packet says so, and all its processes are gone
#   hosts.sh boot HOST            starts it again, empty
#
# TROUPE_HOSTS names the folder of the state; the default is one per user in the folder for temporary files.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

readonly state=${TROUPE_HOSTS:-${TMPDIR:-/tmp}/troupe-hosts-$(id -u)}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
as_user=() # What nsenter needs to join the user namespace, too.
[ "$(id -u)" = 0 ] || as_user=(--user --preserve-credentials)

fail() { echo "hosts.sh: $*" >&2; exit 1; }

number_of() {
  [[ $1 =~ ^h([0-9]+)$ ]] || fail "$1 is not the name of a host: these are h1, h2, ..."
  echo "${BASH_REMATCH[1]}"
}

address_of() { echo "198.18.0.$(number_of "$1")"; }

# The first process of a host, or of the switch, as this machine numbers it.
process_of() {
  [ -s "$state/$1" ] || fail "$1 is not up"
  cat "$state/$1"
}

check() {
  local program probe=(unshare)
  for program in ip tc nft ps pkill setpriv nsenter unshare; do
    command -v "$program" >/dev/null || fail "$program is not installed (Debian: iproute2, nftables, procps, util-linux)"
  done
  [ "$(id -u)" = 0 ] || probe=(unshare --user --map-root-user)
  "${probe[@]}" --net --uts --ipc --mount --pid --fork \
    sh -c 'mount -t proc proc /proc && ip link add probe type bridge && nft add table bridge probe' ||
    { echo "hosts.sh: the kernel forbids this user to make namespaces" >&2; exit 77; }
}

list() { find "$state" -maxdepth 1 -name 'h[0-9]*' ! -name '*.*' -printf '%f\n' | sort -V; }

on_switch() { nsenter --target "$(process_of switch)" "${as_user[@]}" --net -- "$@"; }

on_host() { # HOST COMMAND...
  local pid
  pid=$(process_of "$1")
  nsenter --target "$pid" "${as_user[@]}" --net --uts --ipc --mount --pid -- "${@:2}"
}

# Starts the process that keeps namespaces alive. COMMAND makes them and starts bash in them, which runs SCRIPT.
keep() { # NAME COMMAND... -- SCRIPT
  local name=$1 command=() ready='' pid first
  shift
  while [ "$1" != -- ]; do
    command+=("$1")
    shift
  done
  mkfifo "$state/$name.ready"
  setsid "${command[@]}" bash -c "echo ready >'$state/$name.ready'; $2" </dev/null >/dev/null 2>"$state/$name.log" &
  pid=$!
  read -r -t 10 ready <>"$state/$name.ready" || true
  rm -f "$state/$name.ready"
  [ "$ready" = ready ] || fail "$name cannot be made: $(cat "$state/$name.log")"
  echo "$pid" >"$state/$name.parent"
  # `unshare --fork` remains as the parent of the first process in a pid namespace.
  first=$(ps -o pid=,comm= --ppid "$pid" | awk '$2 == "bash" {print $1}') || true
  echo "${first:-$pid}" >"$state/$name"
}

# Ends what `keep` started and, with the first process of a pid namespace, all others in it.
drop() { # NAME
  local file
  for file in "$state/$1" "$state/$1.parent"; do
    kill -KILL "$(cat "$file")" 2>/dev/null || true
  done
  rm -f "$state/$1" "$state/$1.parent"
}

boot() { # HOST
  local host=$1 n pid mac
  n=$(number_of "$host")
  [ ! -e "$state/$host" ] || fail "$host is up"
  # Its first process reaps orphans.
  keep "$host" nsenter --target "$(process_of switch)" "${as_user[@]}" --net \
    unshare --net --uts --ipc --mount --pid --fork --kill-child -- 'while :; do sleep 3600 & wait $!; done'
  pid=$(process_of "$host")
  # The same hardware address each time: for the others it is the same host that comes back.
  mac=$(printf '02:00:00:00:%02x:%02x' $((n / 256)) $((n % 256)))
  on_switch sh -ec "ip link del p$n 2>/dev/null || true
    ip link add p$n type veth peer name eth0 address $mac netns $pid
    ip link set p$n master switch up"
  on_host "$host" sh -ec "hostname $host
    mount --make-rprivate /
    mount -t proc proc /proc
    mount --bind '$state/names' /etc/hosts
    mount -t tmpfs -o mode=1777 shm /dev/shm
    ip link set lo up
    ip address add $(address_of "$host")/24 dev eth0
    ip link set eth0 up"
}

up() { # COUNT
  local i unshare=(unshare --net)
  mkdir "$state" 2>/dev/null || fail "$state cannot be made; if it exists: hosts.sh down"
  [ "$(id -u)" = 0 ] || unshare=(unshare --user --map-root-user --net)
  keep switch "${unshare[@]}" -- 'exec sleep infinity'
  on_switch sh -ec "ip link set lo up
    ip link add switch type bridge
    ip link set switch up
    nft 'add table bridge faults; add chain bridge faults path { type filter hook forward priority 0; }'"
  {
    echo "127.0.0.1 localhost"
    for i in $(seq "$1"); do echo "$(address_of "h$i") h$i"; done
  } >"$state/names"
  for i in $(seq "$1"); do boot "h$i"; done
}

end_delay() { # HOST
  local n
  n=$(number_of "$1")
  [ -s "$state/$1.wire" ] || return 0
  kill "$(cat "$state/$1.wire")" 2>/dev/null || true
  rm -f "$state/$1.wire"
  on_switch sh -c "ip link del q$n; ip link set p$n master switch" || true
}

down() {
  local name
  [ -d "$state" ] || return 0
  for name in "$state"/*.wire; do
    [ ! -s "$name" ] || kill "$(cat "$name")" 2>/dev/null || true
  done
  for name in $(list); do drop "$name"; done
  [ ! -e "$state/switch" ] || drop switch
  rm -rf "$state"
}

run() { # HOST COMMAND...
  local pid
  pid=$(process_of "$1")
  exec setpriv --pdeathsig KILL \
    nsenter --target "$pid" "${as_user[@]}" --net --uts --ipc --mount --pid --wdns="$PWD" -- \
    setpriv --pdeathsig KILL "${@:2}"
}

drop_packets() { on_switch nft "add rule bridge faults path $* drop"; }

mute() { drop_packets ip saddr "$(address_of "$1")" ip daddr "$(address_of "$2")"; }

lose() { # HOST PERCENT
  local side
  for side in saddr daddr; do
    drop_packets ip "$side" "$(address_of "$1")" numgen random mod 100 '<' "$2"
  done
}

rate() { # HOST MBIT
  local port
  port=p$(number_of "$1")
  on_switch tc qdisc del dev "$port" root 2>/dev/null || true
  [ "$2" = 0 ] || on_switch tc qdisc add dev "$port" root tbf rate "$2mbit" burst 128k latency 50ms
}

# Puts a process between the host's port and the switch: many kernels lack netem.
delay() { # HOST MS
  local n
  n=$(number_of "$1")
  end_delay "$1"
  [ "$2" != 0 ] || return 0
  on_switch sh -ec "ip link add q$n type veth peer name r$n
    ip link set q$n up
    ip link set r$n master switch up
    ip link set p$n nomaster"
  setsid nsenter --target "$(process_of switch)" "${as_user[@]}" --net \
    /usr/bin/python3 "$here/slow_wire.py" "p$n" "q$n" "$2" \
    </dev/null >"$state/$1.wire.log" 2>&1 &
  echo $! >"$state/$1.wire"
}

signal_all() { # SIGNAL HOST: all its processes but the first one.
  on_host "$2" sh -c "kill -$1 -1" || true
}

case "${1:-}" in
  check) check ;;
  up) up "$2" ;;
  down) down ;;
  list) list ;;
  run) run "${@:2}" ;;
  cut) on_switch ip link set "p$(number_of "$2")" down ;;
  plug) on_switch ip link set "p$(number_of "$2")" up ;;
  part) mute "$2" "$3" && mute "$3" "$2" ;;
  mute) mute "$2" "$3" ;;
  lose) lose "$2" "$3" ;;
  heal) on_switch nft flush chain bridge faults path ;;
  rate) rate "$2" "$3" ;;
  delay) delay "$2" "$3" ;;
  freeze) signal_all STOP "$2" ;;
  thaw)
    signal_all CONT "$2"
    # nsenter, on the machine's side, stops with the program that it started.
    pkill -CONT -f "^nsenter --target $(process_of "$2") " || true
    ;;
  crash)
    on_switch ip link set "p$(number_of "$2")" down
    drop "$2"
    ;;
  boot) boot "$2" ;;
  *)
    sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac
