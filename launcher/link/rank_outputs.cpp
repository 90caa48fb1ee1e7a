#include "launcher/link/rank_outputs.h"

#include "base/text.h"

namespace hvd::launcher {

void RankOutputs::open(const std::vector<RankSpec>& ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    index_of_rank_[ranks[i].rank] = i;
    for (const OutputStream stream : {OutputStream::kStdout, OutputStream::kStderr}) {
      outputs_.emplace(output_stream(i, stream), Output{ranks[i].rank, stream});
    }
  }
}

Status RankOutputs::handle(const net::FrameHeader& header, ByteView payload) {
  const auto found = outputs_.find(header.stream);
  if (found == outputs_.end()) {
    return internal_error(cat("the agent named the unknown stream ", header.stream));
  }
  Output& output = found->second;
  if (header.type == net::FrameType::kData) {
    if (!output.window.arrived(payload.size())) {
      return internal_error(
          cat("the agent sent more of rank ", output.rank, "'s output than was granted"));
    }
    events_->on_output(output.rank, output.stream, payload);
  } else if (header.type == net::FrameType::kEnd) {
    events_->on_output_end(output.rank, output.stream);
  } else {
    return internal_error("the agent sent a frame that is not output");
  }
  return {};
}

std::optional<RankOutputs::Grant> RankOutputs::consumed(int rank, OutputStream stream,
                                                        size_t size) {
  const auto index = index_of_rank_.find(rank);
  if (index == index_of_rank_.end()) return {};
  const uint32_t id = output_stream(index->second, stream);
  const uint32_t credit = outputs_.at(id).window.consumed(size);
  if (credit == 0) return {};
  return Grant{id, credit};
}

}  // namespace hvd::launcher
