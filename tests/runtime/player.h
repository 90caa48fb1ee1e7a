// Runs a random program on one rank, and tells what came out wrong. The runtime is behind a seam
// with the calls of the C ABI: in this process it is a Runtime, in a worker the library.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/oracle.h"

namespace hvd::test {

class RankApi {
 public:
  virtual ~RankApi() = default;
  virtual int submit(const hvd_submission& submission, hvd_handle* handle, std::string* error) = 0;
  virtual int poll(hvd_handle handle, bool* done, std::string* error) = 0;
  // HVD_IN_PROGRESS when the time has passed first.
  virtual int wait(hvd_handle handle, double seconds, std::string* error) = 0;
  virtual int output(hvd_handle handle, uint32_t index, hvd_output* output, std::string* error) = 0;
  virtual int release(hvd_handle handle, std::string* error) = 0;
  virtual int add_set(const std::vector<int32_t>& ranks, hvd_handle* handle,
                      std::string* error) = 0;
  virtual int remove_set(int32_t set, hvd_handle* handle, std::string* error) = 0;
};

// The observations of one rank. A report lives until its rank has shut down, since the report owns
// memory of released work.
struct Report {
  std::vector<std::string> complaints;
  // The same on all ranks: sentences of the steps that failed as they had to, by round and step,
  // who joined last, by round, and the ids of sets.
  std::map<std::string, std::string> sentences;
  // The first failure that no step asked for: of a link, or of a peer that left.
  Status broken;

  std::mutex mutex;  // guards all while the program runs
  std::deque<std::shared_ptr<void>> attic;
};

struct PlayOptions {
  // Seconds that a step may take; a hang is a complaint.
  double timeout = 60;
  // Failures of the job are expected: they end the program, and are no complaints.
  bool may_break = false;
};

void play(const Program& program, int rank, RankApi& api, const PlayOptions& options,
          Report* report);

// Complaints of all ranks, and sentences that differ between them.
std::vector<std::string> judge(const std::deque<Report>& reports);

}  // namespace hvd::test
