#!/bin/sh
# The remote command of agent_delivery: runs the agent of this build on a host. If the host lacks the
# file, it first receives the file on standard input. A line for the launcher begins with the mark:
#
#   MARK run           the agent runs, and the stream is the agent's from here on
#   MARK want FOLDER   send the bytes of the agent, which will lie in this folder
#   MARK fail FOLDER   the bytes did not arrive there; another try must leave out this folder
#   MARK arch MACHINE  the host has another architecture than the agent
#   MARK none REASONS  no folder can keep the agent
#
# cmake/embed_shell_script.cmake removes the comments and joins the lines by "; " or, after a word or operator that
# expects a command, by a blank. The result goes to the user's login shell between single quotes, on one line: csh
# and fish pass it on to /bin/sh only without single quotes, backslashes and exclamation marks. The script is for dash,
# bash, ksh and busybox, so it uses no `local`. The agent inherits a variable that the host's environment already
# exports: hence the prefix of all names.

# The file's name ends with the hash of its content.
hvd_name=$1
hvd_size=$2
# As printed by uname -m; empty: any machine.
hvd_machine=$3
# The folder of the user's choice; may be empty.
hvd_chosen=$4
# Folders to skip, separated by colons.
hvd_refused=$5
hvd_mark=$6

hvd_user=$(id -u)
# In a user namespace without root, / has another owner, which must be trusted like root.
# shellcheck disable=SC2046 # the columns of ls
set -- $(ls -ldn /)
hvd_root=$3
hvd_reasons=
hvd_file=
hvd_mask=$(umask)

# Records why a folder cannot contain the agent, and removes partial files.
refuse() {
  hvd_reasons="$hvd_reasons$1; "
  [ -z "$hvd_file" ] || rm -f "$hvd_file"
}

fail() {
  echo "$hvd_mark fail $hvd_folder"
  exit 0
}

# In a shared folder like /tmp, the agent is in a folder of its user.
choose_folder() {
  [ -n "$hvd_folder" ] || return 1
  [ -k "$hvd_folder" ] && hvd_folder=$hvd_folder/horovod-$hvd_user
  return 0
}

# Sets hvd_real to the folder without symbolic links. Only this user and root may own the folder,
# its parents and the file $1 in it, and no other user may be able to change them; a folder that
# others can write must be sticky, so that each entry is its owner's. Checks from / downwards: no
# other user can replace an entry of a checked folder. hvd_unsafe is the first unsafe path.
is_safe() {
  hvd_unsafe=$hvd_folder
  case $hvd_folder in
    (*/horovod-"$hvd_user") [ -h "$hvd_folder" ] && return 1 ;;
  esac
  # shellcheck disable=SC1007 # CDPATH is empty for cd
  hvd_real=$(CDPATH= cd -P "$hvd_folder" 2>/dev/null && pwd -P) || return 1
  case $hvd_real in
    (/*) ;;
    (*) return 1 ;;
  esac
  hvd_entry=$1
  hvd_parent=$hvd_real
  set --
  until [ "$hvd_parent" = / ]; do
    set -- "$hvd_parent" "$@"
    hvd_parent=${hvd_parent%/*}
    hvd_parent=${hvd_parent:-/}
  done
  # shellcheck disable=SC2012 # the order of the arguments, not their names, says which line is whose
  hvd_unsafe=$(
    LC_ALL=C ls -ldn / "$@" ${hvd_entry:+"$hvd_real/$hvd_entry"} 2>/dev/null | (
      for hvd_path in / "$@" ${hvd_entry:+"$hvd_real/$hvd_entry"}; do
        # shellcheck disable=SC2034 # the number of links, and what follows the owner
        read -r hvd_mode hvd_links hvd_owner hvd_rest
        case $hvd_owner in
          (0 | "$hvd_user" | "$hvd_root") case $hvd_mode in
            ([d-]????-??-* | d????????[tT]*) continue ;;
          esac ;;
        esac
        echo "$hvd_path"
        exit
      done
    )
  )
  [ -z "$hvd_unsafe" ]
}

# Checks that the file's content has the hash in its name. A host without these programs gets the file again.
is_whole() {
  # shellcheck disable=SC2046 # the hash is the first word
  set -- $( (sha256sum || shasum -a 256) 2>/dev/null <"$hvd_real/$hvd_name")
  case $1 in
    ("${hvd_name#horovod-agent-}"*) return 0 ;;
  esac
  return 1
}

if [ -n "$hvd_machine" ]; then
  hvd_actual=$(uname -m)
  [ "$hvd_actual" = "$hvd_machine" ] || {
    echo "$hvd_mark arch $hvd_actual"
    exit 0
  }
fi

set -- "$hvd_chosen" "${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/horovod}" "${HOME:+$HOME/.cache/horovod}"
set -- "$@" "/tmp/horovod-$hvd_user" "/var/tmp/horovod-$hvd_user" "/dev/shm/horovod-$hvd_user"

# Search for the agent.
for hvd_folder; do
  choose_folder || continue
  if [ -x "$hvd_folder/$hvd_name" ] && is_safe "$hvd_name" && is_whole; then
    echo "$hvd_mark run"
    exec "$hvd_real/$hvd_name"
  fi
done

# Find a folder for the agent. The ranks must not inherit the umask.
umask 077
for hvd_folder; do
  choose_folder || continue
  case "$hvd_refused" in
    (*:"$hvd_folder":*) continue ;;
  esac
  hvd_file=
  mkdir -p "$hvd_folder" 2>/dev/null
  { [ -d "$hvd_folder" ] && [ -x "$hvd_folder" ]; } || {
    refuse "$hvd_folder cannot be made or entered"
    continue
  }
  is_safe || {
    refuse "$hvd_unsafe belongs to another user or is writable by others"
    continue
  }
  # The mark is a number of this launcher, so two launchers write different files.
  hvd_file="$hvd_real/$hvd_name.${hvd_mark#*:}"
  (: >"$hvd_file") 2>/dev/null || {
    hvd_file=
    refuse "$hvd_folder is not writable"
    continue
  }
  chmod 700 "$hvd_file"
  "$hvd_file" 2>/dev/null || {
    refuse "$hvd_folder does not let programs run (noexec)"
    continue
  }
  trap "exit 1" HUP INT TERM PIPE
  trap refuse EXIT
  echo "$hvd_mark want $hvd_folder"
  # If the network breaks now, only a timeout ends the transfer.
  hvd_limit=
  if command -v timeout >/dev/null 2>&1; then
    hvd_limit="timeout 60"
  fi
  # `head -c` reads only the bytes of the file: the bytes after them are for the agent.
  $hvd_limit head -c "$hvd_size" >"$hvd_file" || fail
  [ "$(wc -c <"$hvd_file")" -eq "$hvd_size" ] || fail
  mv -f "$hvd_file" "$hvd_real/$hvd_name" || fail
  trap - EXIT HUP INT TERM PIPE
  umask "$hvd_mask"
  echo "$hvd_mark run"
  # shellcheck disable=SC2093 # nothing of this script runs after it
  exec "$hvd_real/$hvd_name"
done
echo "$hvd_mark none $hvd_reasons"
