#include "rendezvous/wire/world_report.h"

#include "base/text.h"
#include "base/wire/value_bytes.h"

namespace hvd::rendezvous {

std::string world_report_prefix(int64_t agent) { return cat(kWorldReportNames, agent, "/"); }

Bytes encode(const WorldReport& report) {
  ByteWriter out;
  put(out, report);
  return out.take();
}

Result<WorldReport> decode_world_report(ByteView bytes) {
  ByteReader in(bytes);
  WorldReport report;
  get(in, report);
  HVD_RETURN_IF_ERROR(in.finish("a report of a world"));
  if (report.rank < 0 || report.rank >= report.size) {
    return invalid_argument(cat("there is no rank ", report.rank, " in a world of ", report.size));
  }
  return report;
}

}  // namespace hvd::rendezvous
