// The record of a job: a record that parses formats to a record that parses to the same.
#include "fuzz/target.h"
#include "launcher/state/job_record.h"

HVD_FUZZ_TARGET(job_record) {
  using namespace hvd::launcher;
  const auto record = parse_job_record(text);
  if (!record.ok()) {
    HVD_CHECK(!record.error().message().empty());
    return;
  }
  const std::string written = to_json(*record);
  const auto again = parse_job_record(written);
  HVD_CHECK(again.ok() && to_json(*again) == written);
  const JobLife life = life_of(*record, ProcessIdentity(), 1'700'000'000);
  HVD_CHECK((life == JobLife::kEnded) == record->has_ended());
}
