#include "rendezvous/wire/world_report.h"

#include "base/text.h"

namespace hvd::rendezvous {

std::string world_report_prefix(int64_t agent) { return cat(kWorldReportNames, agent, "/"); }

Bytes encode(const WorldReport& report) {
  ByteWriter out;
  out.put(report.rank).put(report.size).put(static_cast<uint8_t>(report.has_met));
  out.put_text(report.start).put_text(report.ranks);
  return out.take();
}

Result<WorldReport> decode_world_report(ByteView bytes) {
  ByteReader in(bytes);
  WorldReport report;
  report.rank = in.get<int32_t>();
  report.size = in.get<int32_t>();
  report.has_met = in.get<uint8_t>() != 0;
  report.start = in.get_text();
  report.ranks = in.get_text();
  HVD_RETURN_IF_ERROR(in.finish("a report of a world"));
  if (report.rank < 0 || report.rank >= report.size) {
    return invalid_argument(cat("there is no rank ", report.rank, " in a world of ", report.size));
  }
  return report;
}

}  // namespace hvd::rendezvous
