#!/usr/bin/python3
"""usage: plant.py NAME ORIGINAL OUTPUT

Writes ORIGINAL to OUTPUT with the bug NAME in it. Fails unless the replaced text occurs exactly once: after a change of
the original, the plant needs a change too.
"""

import pathlib
import sys

# name: (original text, planted text)
PLANTS = {
    # Another thread that claims or releases a handle races with this thread.
    "race": (
        "  MutexLock lock(mutex_);\n  for (Submission* submission : submissions) {\n",
        "  for (Submission* submission : submissions) {\n",
    ),
    # Each runtime leaks a descriptor.
    "descriptor_leak": (
        "UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));",
        "UniqueFd epoll(::dup(::epoll_create1(EPOLL_CLOEXEC)));",
    ),
    # Unused names are never freed.
    "memory_leak": (
        "if (--name->in_flight == 0 && !name->kept) erase(*name);",
        "if (--name->in_flight == 0 && !name->kept)\n"
        "      (void)names_.extract(Key{name->set, name->text}).mapped().release();",
    ),
    # Sometimes get() returns the value of the previous call.
    "stale_get": (
        "  return entry == entries_.end() ? nullptr : entry->second.value;\n",
        "  static std::map<std::string, ValuePtr, std::less<>> seen;\n"
        "  static unsigned calls = 0;\n"
        "  const ValuePtr now = entry == entries_.end() ? nullptr : entry->second.value;\n"
        "  const ValuePtr before = std::exchange(seen[std::string(key)], now);\n"
        "  return ++calls % 50 == 0 ? before : now;\n",
    ),
    # A reply is sent before the records that it depends on are stored.
    "early_reply": (
        "  const uint64_t wanted = last_group_;\n",
        "  const uint64_t wanted = 0;\n",
    ),
    # A tentative plan with names that differ from the announced names counts as matched.
    "wrong_tentative_plan": (
        "sent_ == tentative.after && same_ids(sent_ids_, tentative.ids)",
        "sent_ == tentative.after",
    ),
    # Checks for work before it sets `sleeping_`: a thread that submits in between wakes nobody.
    "lost_wakeup": (
        "  sleeping_.store(true);\n",
        "  const bool seen = core_->has_input();\n"
        "  for (int i = 0; i < 10; ++i) ::sched_yield();\n"
        "  sleeping_.store(true);\n"
        "  if (!seen) return true;\n",
    ),
    # An NCCL batch ends before its kernels: the host reads results too early.
    "nccl_early_end": (
        '  HVD_RETURN_IF_ERROR(api.of_device(api.stream_wait_event(notices_, done_, 0), "StreamWaitEvent"));\n',
        "",
    ),
    # The input of a joined rank is freed before its kernel ends.
    "nccl_early_free": (
        "  lent_.push_back(inputs_[tensor]);\n",
        "  api_.free_async(inputs_[tensor], channel_.stream());\n",
    ),
    # A driver thread queries a communicator for errors while the plugin's thread uses it.
    "nccl_two_threads": (
        "  is_reached_.store(true, std::memory_order_release);\n",
        "  is_reached_.store(true, std::memory_order_release);\n  static_cast<void>(set_->channel->check());\n",
    ),
}


def plant(name, original):
    old, new = PLANTS[name]
    if (found := original.count(old)) != 1:
        raise SystemExit(
            f"plant.py: the plant '{name}' replaces this text, which is there {found} "
            f"times instead of once; let it follow the change of its original:\n{old}"
        )
    return original.replace(old, new)


def main():
    name, original, output = sys.argv[1:]
    text = pathlib.Path(original).read_text(encoding="utf-8")
    pathlib.Path(output).write_text(plant(name, text), encoding="utf-8")


if __name__ == "__main__":
    main()
