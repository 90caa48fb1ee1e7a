// The invitation in which rank 0 names its store to the other ranks under a foreign launcher.
#include "fuzz/target.h"
#include "runtime/bootstrap/served_store.h"

HVD_FUZZ_TARGET(invitation) {
  const auto told = hvd::runtime::parse_invitation(text);
  if (!told.ok()) return;
  const auto again = hvd::runtime::parse_invitation(
      hvd::runtime::invitation(*hvd::Secret::from_hex(told->secret), told->endpoints));
  if (!again.ok() || again->endpoints != told->endpoints) __builtin_trap();
}
