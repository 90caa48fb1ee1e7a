// Runs a random program on one rank and reports wrong results. An interface with the calls of the C
// ABI hides the runtime: a Runtime in this process, the library in a worker.
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
  // Returns HVD_IN_PROGRESS if the timeout expires first.
  virtual int wait(hvd_handle handle, double seconds, std::string* error) = 0;
  virtual int output(hvd_handle handle, uint32_t index, hvd_output* output, std::string* error) = 0;
  virtual int release(hvd_handle handle, std::string* error) = 0;
  virtual int add_set(const std::vector<int32_t>& ranks, hvd_handle* handle,
                      std::string* error) = 0;
  virtual int remove_set(int32_t set, hvd_handle* handle, std::string* error) = 0;
};

// The observations of one rank. A report must outlive its rank's shutdown, because it owns memory
// of released work.
struct Report {
  std::vector<std::string> complaints;
  // Equal on all ranks: errors of the steps that had to fail, by round and step; the last rank to
  // join, by round; and the ids of sets.
  std::map<std::string, std::string> sentences;
  // The first unplanned failure: of a link, or of a peer that shut down.
  Status broken;

  std::mutex mutex;  // guards all members while the program runs
  std::deque<std::shared_ptr<void>> attic;
};

struct PlayOptions {
  // Seconds that a step may take; a longer step is a complaint.
  double timeout = 60;
  // If true, failures of the job are expected: they end the program, and are not complaints.
  bool may_break = false;
};

void play(const Program& program, int rank, RankApi& api, const PlayOptions& options,
          Report* report);

// Returns the complaints of all ranks, and the errors that differ between ranks.
std::vector<std::string> judge(const std::deque<Report>& reports);

}  // namespace hvd::test
