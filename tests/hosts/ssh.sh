#!/usr/bin/env bash
# sshd on the hosts of hosts.sh, with keys of its own: no setting of the machine's ssh is read or changed. Needs
# openssh-server, and root.
#
#   ssh.sh up [NAME=VALUE...]  starts an sshd on each host that is up; logins have these variables
#   ssh.sh start HOST          starts that of a host that was booted again
#   ssh.sh command FROM        prints the ssh command for processes on FROM, to be followed by HOST COMMAND...
#   ssh.sh down                ends them and removes the keys
#
# Keys and settings are in $TROUPE_HOSTS.ssh, beside the folder of the hosts.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here hosts=$here/hosts.sh
export TROUPE_HOSTS=${TROUPE_HOSTS:-${TMPDIR:-/tmp}/troupe-hosts-$(id -u)}
readonly folder=$TROUPE_HOSTS.ssh

write_settings() { # NAME=VALUE...
  local variable set=''
  for variable in "$@"; do set+=" \"$variable\""; done
  ssh-keygen -q -t ed25519 -N '' -f "$folder/host_key"
  ssh-keygen -q -t ed25519 -N '' -f "$folder/user_key"
  cp "$folder/user_key.pub" "$folder/authorized_keys"
  echo "* $(cut -d' ' -f1,2 "$folder/host_key.pub")" >"$folder/known_hosts"
  cat >"$folder/sshd_config" <<END
HostKey $folder/host_key
AuthorizedKeysFile $folder/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PrintMotd no
UseDNS no
${set:+SetEnv$set}
END
  cat >"$folder/config" <<END
Host *
  IdentityFile $folder/user_key
  IdentitiesOnly yes
  UserKnownHostsFile $folder/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 5
  ServerAliveInterval 1
  ServerAliveCountMax 3
  LogLevel ERROR
END
}

start() { # HOST
  # sshd needs /run/sshd, which is the machine's: each host mounts its own.
  "$hosts" run "$1" sh -ec "mkdir -p /run/sshd
    mount -t tmpfs -o mode=755 sshd /run/sshd
    /usr/sbin/sshd -f '$folder/sshd_config' -E '$folder/$1.log'"
}

up() { # NAME=VALUE...
  local host
  mkdir -m 700 "$folder" || { echo "ssh.sh: if $folder exists: ssh.sh down" >&2; exit 1; }
  write_settings "$@"
  for host in $("$hosts" list); do start "$host"; done
}

down() {
  local host
  for host in $("$hosts" list 2>/dev/null); do
    "$hosts" run "$host" pkill -x sshd || true
  done
  rm -rf "$folder"
}

case "${1:-}" in
  up) up "${@:2}" ;;
  start) start "$2" ;;
  command) echo "$hosts run $2 ssh -F $folder/config" ;;
  down) down ;;
  *)
    sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac
