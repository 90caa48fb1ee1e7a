// Opens a plugin in its own shared object, calls its entry, and checks its record. The catalogue calls
// it.
#pragma once

#include <string>

#include "base/result.h"
#include "horovod/plugin.h"

namespace hvd::plugin {

// The record, valid for the rest of the process. The sentence of a failure names the file.
Result<const hvd_plugin*> load(const std::string& path);

// Whether a plugin works here; its own reason where not.
Status probe(const hvd_plugin& record);

// Whether this build can speak to a record, wherever it came from.
Status check_record(const hvd_plugin* record);

}  // namespace hvd::plugin
