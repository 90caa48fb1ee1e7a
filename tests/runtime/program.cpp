#include "runtime/program.h"

#include <algorithm>
#include <random>

#include "base/dtype.h"
#include "base/text.h"

namespace hvd::test {
namespace {

class Maker {
 public:
  Maker(unsigned seed, int size, const Vocabulary& vocabulary)
      : random_(seed), all_(size), size_(size), vocabulary_(vocabulary) {
    program_.seed = seed;
    program_.size = size;
  }

  Program make() {
    make_sets();
    const size_t rounds = 1 + below(4);
    for (size_t i = 0; i < rounds; ++i) {
      // Repeats a round like a training step, with the same names and parameters.
      if (i > 0 && below(3) == 0)
        program_.rounds.push_back(again(program_.rounds[below(i)]));
      else
        program_.rounds.push_back(round());
    }
    return std::move(program_);
  }

 private:
  size_t below(size_t end) { return random_() % end; }
  template <typename T, size_t kCount>
  T one_of(const T (&values)[kCount]) {
    return values[below(kCount)];
  }

  // Makes different sets, none of which has all ranks.
  void make_sets() {
    if (!vocabulary_.sets || all_ < 2 || below(2) == 0) return;
    for (size_t i = 0, count = 1 + below(3); i < count; ++i) {
      std::vector<int32_t> set;
      for (int32_t rank = 0; rank < all_; ++rank) {
        if (below(2) == 0) set.push_back(rank);
      }
      const bool is_new =
          std::find(program_.sets.begin(), program_.sets.end(), set) == program_.sets.end();
      if (!set.empty() && set.size() < static_cast<size_t>(all_) && is_new) {
        program_.sets.push_back(std::move(set));
      }
    }
  }

  // Makes a step of all ranks or of a set.
  Step any_step() {
    const int set =
        program_.sets.empty() || below(2) == 0 ? -1 : static_cast<int>(below(program_.sets.size()));
    size_ = set < 0 ? all_ : static_cast<int>(program_.sets[static_cast<size_t>(set)].size());
    Step made = step();
    made.set = set;
    size_ = all_;
    return made;
  }

  // Ranks join one after another; the last rank makes all steps.
  Round join_round() {
    Round round;
    round.in_order = round.ends_with_join = true;
    const size_t steps = 1 + below(8);
    std::vector<size_t> leaves_at;
    for (int rank = 0; rank < all_; ++rank) leaves_at.push_back(below(steps + 1));
    leaves_at[below(leaves_at.size())] = steps;
    for (size_t i = 0; i < steps; ++i) {
      Step step;
      step.name = cat("j", i);
      step.salt = static_cast<unsigned>(below(1000));
      step.in_place = below(2) == 0;
      step.tensors.push_back(tensor(HVD_ALLREDUCE));
      reduction(&step);
      for (const size_t leaves : leaves_at) step.joined.push_back(leaves <= i);
      round.steps.push_back(std::move(step));
    }
    return round;
  }

  Round round() {
    if (vocabulary_.joins && below(6) == 0) return join_round();
    Round round;
    round.in_order = below(4) == 0;
    round.threads = 1 + static_cast<int>(below(2));
    const size_t steps = 1 + below(below(4) == 0 ? 40 : 12);
    for (size_t i = 0; i < steps; ++i) {
      Step next = any_step();
      // Other rounds reuse names, mostly with other parameters.
      next.name = cat(next.op == HVD_BARRIER ? "barrier" : "n", i);
      dress(&next, i);
      round.steps.push_back(std::move(next));
    }
    return round;
  }

  Round again(Round round) {
    for (size_t i = 0; i < round.steps.size(); ++i) {
      Step& step = round.steps[i];
      step.salt = static_cast<unsigned>(below(1000));
      if (step.careless_rank >= 0) dress(&step, i);
    }
    return round;
  }

  // Gives work that no rank can wait for a unique name.
  void dress(Step* step, size_t index) {
    if (step->careless_rank >= 0) {
      step->name = cat("once", program_.rounds.size(), ".", index);
    }
  }

  Step step() {
    const int32_t kinds[] = {HVD_ALLREDUCE, HVD_ALLREDUCE,     HVD_ALLREDUCE,
                             HVD_ALLREDUCE, HVD_ALLGATHER,     HVD_BROADCAST,
                             HVD_ALLTOALL,  HVD_REDUCESCATTER, HVD_BARRIER};
    Step step;
    step.op = one_of(kinds);
    step.salt = static_cast<unsigned>(below(1000));
    step.root = static_cast<int32_t>(below(static_cast<size_t>(size_)));
    step.in_place = below(2) == 0;
    if (step.op == HVD_BARRIER) return step;
    const size_t group = step.op != HVD_ALLTOALL && below(6) == 0 ? 2 + below(4) : 1;
    for (size_t i = 0; i < group; ++i) step.tensors.push_back(tensor(step.op));
    reduction(&step);
    rows(&step);
    if (below(25) == 0)
      refuse(&step);
    else if (below(12) == 0)
      make_odd(&step);
    else if (below(40) == 0)
      step.careless_rank = rank();
    return step;
  }

  int32_t rank() { return static_cast<int32_t>(below(static_cast<size_t>(size_))); }

  TensorTerms tensor(int32_t op) {
    TensorTerms terms;
    terms.dtype = vocabulary_.dtypes[below(vocabulary_.dtypes.size())];
    const bool has_rows = op == HVD_ALLGATHER || op == HVD_ALLTOALL || op == HVD_REDUCESCATTER;
    const size_t dimensions = (has_rows ? 1 : 0) + below(3);
    int64_t left = below(8) == 0 ? vocabulary_.largest : 200;
    for (size_t i = 0; i < dimensions; ++i) {
      const auto extent =
          below(20) == 0 ? 0 : 1 + static_cast<int64_t>(below(static_cast<size_t>(left)));
      terms.shape.push_back(extent);
      if (extent > 0) left = std::max<int64_t>(1, left / extent);
    }
    return terms;
  }

  void reduction(Step* step) {
    if (step->op != HVD_ALLREDUCE && step->op != HVD_REDUCESCATTER) return;
    const int32_t all[] = {HVD_SUM, HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    const int32_t some[] = {HVD_SUM, HVD_AVERAGE};
    step->reduce_op = step->op == HVD_ALLREDUCE ? one_of(all) : one_of(some);
    bool has_bool = false;
    for (TensorTerms& tensor : step->tensors) has_bool |= tensor.dtype == HVD_BOOL;
    // Bools have no average and no scale, and reducescatter refuses them.
    if (has_bool && step->op == HVD_REDUCESCATTER) {
      for (TensorTerms& tensor : step->tensors) tensor.dtype = HVD_INT32;
      has_bool = false;
    }
    if (has_bool) {
      if (step->reduce_op == HVD_AVERAGE) step->reduce_op = HVD_SUM;
    } else if (step->reduce_op != HVD_AVERAGE && step->reduce_op != HVD_PRODUCT && below(4) == 0) {
      const double factors[] = {0.5, 1, 2};
      step->prescale = one_of(factors);
      step->postscale = one_of(factors);
    }
  }

  void rows(Step* step) {
    if (step->op == HVD_ALLGATHER) {
      for (const TensorTerms& tensor : step->tensors) {
        auto& rows = step->rows.emplace_back();
        for (int rank = 0; rank < size_; ++rank) {
          rows.push_back(static_cast<int64_t>(below(static_cast<size_t>(tensor.shape[0]) + 1)));
        }
      }
    }
    if (step->op != HVD_ALLTOALL) return;
    step->even = !vocabulary_.uneven_alltoall || below(3) == 0;
    const auto most = std::min<size_t>(20, static_cast<size_t>(step->tensors[0].shape[0])) + 1;
    const size_t same = below(most);
    for (int from = 0; from < size_; ++from) {
      auto& rows = step->rows.emplace_back();
      for (int to = 0; to < size_; ++to) {
        rows.push_back(static_cast<int64_t>(step->even ? same : below(most)));
      }
    }
  }

  void refuse(Step* step) {
    const Refused any[] = {Refused::kSet, Refused::kName};
    step->refused = one_of(any);
    if (step->op == HVD_BROADCAST && below(2) == 0) step->refused = Refused::kRoot;
    if (step->op == HVD_ALLREDUCE && below(2) == 0) step->refused = Refused::kReduction;
    if (step->op == HVD_ALLTOALL && below(2) == 0) {
      step->refused = size_ > 1 && below(2) == 0 ? Refused::kUneven : Refused::kSplits;
    }
  }

  void make_odd(Step* step) {
    if (size_ == 1) return;
    step->odd_rank = rank();
    switch (step->op) {
      case HVD_ALLREDUCE: {
        const Odd any[] = {Odd::kDtype, Odd::kOperation, Odd::kShape,
                           Odd::kScale, Odd::kReduction, Odd::kGroup};
        step->odd = one_of(any);
        break;
      }
      case HVD_BROADCAST: {
        const Odd any[] = {Odd::kDtype, Odd::kOperation, Odd::kShape, Odd::kRoot};
        step->odd = one_of(any);
        break;
      }
      case HVD_ALLGATHER: {
        const Odd any[] = {Odd::kDtype, Odd::kShape};
        step->odd = one_of(any);
        break;
      }
      case HVD_REDUCESCATTER: {
        const Odd any[] = {Odd::kDtype, Odd::kShape, Odd::kScale};
        step->odd = one_of(any);
        break;
      }
      default:
        step->odd = Odd::kDtype;
        break;
    }
    // The odd rank has an additional tensor in its group, and an in-place step cannot hold it.
    if (step->odd == Odd::kGroup) step->in_place = false;
  }

  std::mt19937 random_;
  const int all_;
  int size_;  // number of members of the current step
  const Vocabulary& vocabulary_;
  Program program_;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape) text += cat(text.size() > 1 ? ", " : "", extent);
  return text + "]";
}

const char* op_text(int32_t op) {
  switch (op) {
    case HVD_ALLREDUCE:
      return "allreduce";
    case HVD_ALLGATHER:
      return "allgather";
    case HVD_BROADCAST:
      return "broadcast";
    case HVD_ALLTOALL:
      return "alltoall";
    case HVD_REDUCESCATTER:
      return "reducescatter";
    default:
      return "barrier";
  }
}

}  // namespace

int Program::members(const Step& step) const {
  return step.set < 0 ? size : static_cast<int>(sets[static_cast<size_t>(step.set)].size());
}

int Program::index_in(const Step& step, int rank) const {
  if (step.set < 0) return rank;
  const auto& set = sets[static_cast<size_t>(step.set)];
  const auto found = std::find(set.begin(), set.end(), rank);
  return found == set.end() ? -1 : static_cast<int>(found - set.begin());
}

int Program::rank_of(const Step& step, int index) const {
  return step.set < 0 ? index : sets[static_cast<size_t>(step.set)][static_cast<size_t>(index)];
}

Vocabulary everything() {
  Vocabulary vocabulary;
  for (int32_t dtype = 0; dtype < kDtypeCount; ++dtype) vocabulary.dtypes.push_back(dtype);
  return vocabulary;
}

Program make_program(unsigned seed, int size, const Vocabulary& vocabulary) {
  return Maker(seed, size, vocabulary).make();
}

std::vector<int64_t> shape_on(const Step& step, size_t tensor, int rank) {
  std::vector<int64_t> shape = step.tensors[tensor].shape;
  const auto at = static_cast<size_t>(rank);
  if (step.op == HVD_ALLGATHER) shape[0] = step.rows[tensor][at];
  if (step.op == HVD_ALLTOALL) {
    shape[0] = 0;
    for (const int64_t rows : step.rows[at]) shape[0] += rows;
  }
  // Adds a dimension that other ranks lack, which is wrong for every operation.
  if (step.odd == Odd::kShape && step.odd_rank == rank && tensor == 0) shape.push_back(2);
  return shape;
}

std::string describe(const Step& step) {
  std::string text = cat(op_text(step.op), " '", step.name, "' salt ", step.salt);
  for (size_t i = 0; i < step.tensors.size(); ++i) {
    const TensorTerms& tensor = step.tensors[i];
    text += cat(" ", name_of(static_cast<hvd_dtype>(tensor.dtype)), shape_text(tensor.shape));
  }
  if (step.op == HVD_ALLREDUCE || step.op == HVD_REDUCESCATTER) {
    text += cat(" ", name_of(static_cast<hvd_reduce_op>(step.reduce_op)), " scales ", step.prescale,
                " ", step.postscale);
  }
  if (step.set >= 0) text += cat(" in set ", step.set);
  for (size_t i = 0; i < step.joined.size(); ++i) {
    if (step.joined[i]) text += cat(" without ", i);
  }
  if (step.op == HVD_BROADCAST) text += cat(" from ", step.root);
  for (const auto& rows : step.rows) text += cat(" rows ", shape_text(rows));
  if (step.even) text += " even";
  if (step.in_place) text += " in place";
  if (step.odd != Odd::kNothing) {
    text += cat(" odd ", static_cast<int>(step.odd), " on rank ", step.odd_rank);
  }
  if (step.refused != Refused::kNothing) text += cat(" refused ", static_cast<int>(step.refused));
  if (step.careless_rank >= 0) text += cat(" released at once by rank ", step.careless_rank);
  return text;
}

std::string describe(const Program& program) {
  std::string text = cat("program ", program.seed, " of ", program.size, " ranks\n");
  for (const auto& set : program.sets) {
    text += "  set of ranks";
    for (const int32_t rank : set) text += cat(" ", rank);
    text += "\n";
  }
  for (const Round& round : program.rounds) {
    text += round.in_order ? "  round in order\n" : cat("  round of ", round.threads, " threads\n");
    for (const Step& step : round.steps) text += cat("    ", describe(step), "\n");
  }
  return text;
}

}  // namespace hvd::test
