#include <doctest/doctest.h>

#include <set>
#include <utility>

#include "launcher/elastic/elastic_core.h"

namespace hvd::launcher {

TEST_CASE("an elastic job moves along the drawn lines alone") {
  using enum JobStage;
  const std::set<std::pair<JobStage, JobStage>> lines = {
      {kUnknown, kAssumed},   {kUnknown, kAsking},   {kAssumed, kAsking},    {kAsking, kElastic},
      {kAssumed, kFinishing}, {kAsking, kFinishing}, {kElastic, kFinishing}, {kAssumed, kOver},
      {kAsking, kOver},       {kElastic, kOver},     {kFinishing, kOver}};
  for (const JobStage stage : {kUnknown, kAssumed, kAsking, kElastic, kFinishing, kOver}) {
    for (const JobStage next : {kUnknown, kAssumed, kAsking, kElastic, kFinishing, kOver}) {
      CHECK(may_follow(stage, next) == lines.contains({stage, next}));
    }
  }
}

}  // namespace hvd::launcher
