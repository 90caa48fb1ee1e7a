#include "launcher/allocation/host_choice.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/text.h"

namespace hvd::launcher {
namespace {

std::string sge_job(int number, const std::string& slots) {
  return cat("      <job_list state=\"running\">\n        <JB_job_number>", number,
             "</JB_job_number>\n        <state>r</state>\n        <slots>", slots,
             "</slots>\n      </job_list>\n");
}

// Returns the output of SGE 8.1.9 for a job with five slots and a job with one slot.
std::string sge_answer(const std::string& alpha, const std::string& beta) {
  return cat("<?xml version='1.0'?>\n<job_info  xmlns:xsd=\"http://arc.liv.ac.uk/qstat.xsd\">\n",
             "  <queue_info>\n    <Queue-List>\n      <name>all.q@alpha</name>\n",
             "      <slots_used>3</slots_used>\n", alpha, "    </Queue-List>\n    <Queue-List>\n",
             "      <name>all.q@beta</name>\n", beta, "    </Queue-List>\n  </queue_info>\n",
             "  <job_info>\n  </job_info>\n</job_info>\n");
}

std::string sge_error_of(const std::string& text, const std::string& number = "5") {
  return parse_sge_hosts(text, number).status().message();
}

}  // namespace

TEST_CASE("the hosts of a job of SGE have its slots in each queue") {
  const std::string text = sge_answer(sge_job(5, "2") + sge_job(6, "1"), sge_job(5, "3"));
  CHECK(*parse_sge_hosts(text, "5") == std::vector<Host>{{"alpha", "", 2}, {"beta", "", 3}});
  CHECK(*parse_sge_hosts(text, "6") == std::vector<Host>{{"alpha", "", 1}});
}

TEST_CASE("an answer of SGE without the hosts of the job says why") {
  CHECK(sge_error_of(sge_answer(sge_job(6, "1"), "")) ==
        "qstat lists no running job of yours with that number");
  CHECK(sge_error_of("error: unable to contact qmaster\n") ==
        "qstat printed error: unable to contact qmaster");
  CHECK(sge_error_of("") == "qstat printed nothing");
  CHECK(sge_error_of(sge_answer(sge_job(5, "x"), "")).find("'x'") != std::string::npos);
  const std::string task = "        <JB_job_number>5</JB_job_number>\n        <tasks>1</tasks>\n";
  CHECK(sge_error_of(sge_answer(task, "")) ==
        "it is an array, whose tasks have hosts of their own");
}

}  // namespace hvd::launcher
