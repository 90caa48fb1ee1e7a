#!/bin/sh
# The remote command of agent_delivery: runs the agent of this build on a host. Where the host has no such file, it
# first receives the file on standard input. A line for the launcher begins with the mark:
#
#   MARK run           the agent runs, and the stream is the agent's from here on
#   MARK want FOLDER   send the bytes of the agent, which will lie in this folder
#   MARK fail FOLDER   the bytes did not arrive there; another try must leave out this folder
#   MARK arch MACHINE  the host has another architecture than the agent
#   MARK none REASONS  no folder can keep the agent
#
# cmake/embed_shell_script.cmake removes the comments and joins the lines by "; " or, after a word or operator that
# expects a command, by a blank. The result goes to the user's login shell between single quotes, on one line: csh
# and fish pass it on to /bin/sh only without single quotes, backslashes and exclamation marks. It is for dash, bash,
# ksh and busybox, so there is no `local`. The agent inherits a variable that the host's environment already
# exports: hence the prefix of all names.

# The name of the file ends with the hash of its content.
hvd_name=$1
hvd_size=$2
# As uname -m prints it; empty: the agent runs on any machine.
hvd_machine=$3
# The folder of the user's choice, or empty.
hvd_chosen=$4
# Folders to leave out, between colons.
hvd_refused=$5
hvd_mark=$6

hvd_user=$(id -u)
# In a user namespace without root, / has another owner, which must be trusted as root.
# shellcheck disable=SC2046 # the columns of ls
set -- $(ls -ldn /)
hvd_root=$3
hvd_reasons=
hvd_file=
hvd_mask=$(umask)

# Notes why a folder cannot keep the agent, and removes what was written there.
refuse() {
  hvd_reasons="$hvd_reasons$1; "
  [ -z "$hvd_file" ] || rm -f "$hvd_file"
}

fail() {
  echo "$hvd_mark fail $hvd_folder"
  exit 0
}

# In a folder such as /tmp, the agent lies in a folder of its user.
choose_folder() {
  [ -n "$hvd_folder" ] || return 1
  [ -k "$hvd_folder" ] && hvd_folder=$hvd_folder/horovod-$hvd_user
  return 0
}

# Sets hvd_real to the folder without symbolic links. Only this user and root may own it, its parents and the file
# $1 in it, and no other user may change them; a folder that others can write must be sticky, so that each entry is
# its owner's. Looks from / downwards: no other user can replace an entry of a folder that has passed. hvd_unsafe is
# the first that fails.
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

# Whether the content of the file has the hash of its name. A host without these programs gets the file again.
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

# Look for the agent.
for hvd_folder; do
  choose_folder || continue
  if [ -x "$hvd_folder/$hvd_name" ] && is_safe "$hvd_name" && is_whole; then
    echo "$hvd_mark run"
    exec "$hvd_real/$hvd_name"
  fi
done

# Find a folder for it. The ranks must not inherit the mask.
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
  # The mark is a number of this launcher: two launchers do not write the same file.
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
  # If the network breaks now, the transfer needs a timeout to end.
  hvd_limit=
  if command -v timeout >/dev/null 2>&1; then
    hvd_limit="timeout 60"
  fi
  # `head -c` reads the bytes of the file and no more: the bytes after them are the agent's.
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
