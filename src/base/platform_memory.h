// Copies that know what the caches of this processor do. Pure functions of memory; any thread.
#pragma once

#include <stddef.h>

namespace hvd {

// As memcpy, for memory that another core read last and will read next: a plain store would first
// have to take every line back from that core's cache. The lines go past this core's caches, and
// are there for others once a flag is that was stored after settle_past_caches().
void copy_past_caches(void* to, const void* from, size_t size);
// Once after many copies: each by itself would wait for its lines to leave.
void settle_past_caches();

}  // namespace hvd
