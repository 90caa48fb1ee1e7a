// The record of a job: a record that parses formats to a record that parses to the same.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "fuzz/target.h"
#include "launcher/state/job_record.h"

HVD_FUZZ_TARGET(job_record) {
  using namespace hvd::launcher;
  const auto record = parse_job_record({reinterpret_cast<const char*>(data), size});
  if (!record.ok()) {
    HVD_CHECK(!record.error().message().empty());
    return 0;
  }
  const std::string text = to_json(*record);
  const auto again = parse_job_record(text);
  HVD_CHECK(again.ok() && to_json(*again) == text);
  const JobLife life = life_of(*record, ProcessIdentity(), 1'700'000'000);
  HVD_CHECK((life == JobLife::kEnded) == record->has_ended());
  return 0;
}
