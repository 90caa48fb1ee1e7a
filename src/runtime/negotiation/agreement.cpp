#include "runtime/negotiation/agreement.h"

#include <algorithm>
#include <cmath>

#include "base/operations/op_traits.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

constexpr size_t kVariantsKept = 2;

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return result;
}

struct RequestPair {
  const std::string& name;
  RankRequest a;
  RankRequest b;

  // Returns, for example, "Mismatched data types of 'w': float32 on rank 0, float64 on rank 2; <advice>".
  template <typename A, typename B>
  std::string mismatch(std::string_view what, const A& of_a, const B& of_b,
                       std::string_view advice) const {
    return cat("Mismatched ", what, " of '", printable(name), "': ", of_a, " on rank ", a.rank,
               ", ", of_b, " on rank ", b.rank, "; ", advice);
  }
};

// Names a tensor by its index within its group, for messages.
std::string member(const Request& request, size_t index) {
  return request.tensors.size() > 1 ? cat(" of tensor ", index, " of the group") : std::string();
}

std::optional<std::string> dtypes(const RequestPair& pair) {
  const auto& a = pair.a.request.tensors;
  const auto& b = pair.b.request.tensors;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].dtype == b[i].dtype) continue;
    return pair.mismatch(cat("data types", member(pair.a.request, i)), dtype_name(a[i].dtype),
                         dtype_name(b[i].dtype), "give the tensor the same dtype on every rank");
  }
  return {};
}

std::optional<std::string> shapes(const RequestPair& pair) {
  const Request& a = pair.a.request;
  const Request& b = pair.b.request;
  const size_t first = has_rank_rows(a.op) ? 1 : 0;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const auto& of_a = a.tensors[i].shape;
    const auto& of_b = b.tensors[i].shape;
    if (of_a.size() == of_b.size() &&
        (of_a.size() <= first ||
         std::equal(of_a.begin() + first, of_a.end(), of_b.begin() + first))) {
      continue;
    }
    return pair.mismatch(cat(upper(op_name(a.op)), " tensor shapes", member(a, i)), list_text(of_a),
                         list_text(of_b),
                         first == 1 ? "only dimension 0 may differ between ranks"
                                    : "the shape must be the same on every rank");
  }
  return {};
}

// Returns the operation's name for errors. An allreduce with Adasum has its own name.
std::string_view operation(const Request& request) {
  const bool adasum = request.op == HVD_ALLREDUCE && request.reduce_op == HVD_ADASUM;
  return adasum ? reduce_op_name(HVD_ADASUM) : op_name(request.op);
}

std::string registration(const Request& request) {
  if (request.op == kRemoveProcessSet || request.op == kRemoveNamedSet) {
    return cat("remove_process_set(", request.root, ")");
  }
  std::string text;
  for (const auto& ranks : sets_of(request)) {
    text += cat(text.empty() ? "" : " and ", list_text(std::span<const int32_t>(ranks)));
  }
  return cat("process set ", text.empty() ? "none" : text);
}

std::optional<std::string> registrations(const RankRequest& a, const RankRequest& b) {
  if (a.request.op == b.request.op && a.request.root == b.request.root &&
      a.request.splits == b.request.splits) {
    return {};
  }
  return cat("Mismatched process sets: ", registration(a.request), " on rank ", a.rank, ", ",
             registration(b.request), " on rank ", b.rank,
             "; every rank of the job must register and remove the same process sets in the same "
             "order");
}

// Returns the error if a rank has refused the submission before the comparison.
std::optional<std::string> refusal(const RankRequest& by) {
  if (by.request.refusal.empty()) return {};
  return cat("rank ", by.rank, " refused ", by.request.refusal);
}

// Describes the first parameter that differs.
std::optional<std::string> terms(const RequestPair& pair) {
  const Request& a = pair.a.request;
  const Request& b = pair.b.request;
  if (a.refusal != b.refusal) return refusal(a.refusal.empty() ? pair.b : pair.a);
  if (is_registration(a.op) || is_registration(b.op)) return registrations(pair.a, pair.b);
  if (auto sentence = dtypes(pair)) return sentence;
  if (operation(a) != operation(b)) {
    return pair.mismatch("operations", upper(operation(a)), upper(operation(b)),
                         "a name belongs to one operation at a time");
  }
  if (a.tensors.size() != b.tensors.size()) {
    return pair.mismatch("group sizes", cat(a.tensors.size(), " tensors"),
                         cat(b.tensors.size(), " tensors"),
                         "a group must have the same members on every rank");
  }
  if (has_rank_rows(a.op)) return {};
  if (auto sentence = shapes(pair)) return sentence;
  if (!reduces(a.op)) return {};
  if (a.prescale != b.prescale || a.postscale != b.postscale) {
    return pair.mismatch("prescale and/or postscale factors", cat(a.prescale, " and ", a.postscale),
                         cat(b.prescale, " and ", b.postscale),
                         "the factors must be the same on every rank");
  }
  if (a.reduce_op == b.reduce_op) return {};
  return pair.mismatch("reduction operations", reduce_op_name(a.reduce_op),
                       reduce_op_name(b.reduce_op), "the op must be the same on every rank");
}

// Compares the remaining parameters, which matter only if terms() finds no difference.
std::optional<std::string> places(const RequestPair& pair) {
  const Request& a = pair.a.request;
  const Request& b = pair.b.request;
  if (has_rank_rows(a.op)) {
    if (auto sentence = shapes(pair)) return sentence;
  }
  if (traits_of(a.op).has_root && a.root != b.root) {
    return pair.mismatch("BROADCAST root ranks", a.root, b.root,
                         "all ranks must receive from the same one");
  }
  const bool both_decide = a.device != kStagedDevice && b.device != kStagedDevice;
  if (both_decide && a.is_on_device() != b.is_on_device()) {
    return pair.mismatch("CPU/GPU device selections", a.is_on_device() ? "GPU" : "CPU",
                         b.is_on_device() ? "GPU" : "CPU",
                         "the tensor must be on the same kind of device on every rank");
  }
  return {};
}

std::optional<std::string> absence(const Proposal& proposal, std::string_view joined) {
  const int32_t op = proposal.variants.front().request.op;
  if (joined.empty() || traits_of(op).runs_with_joined) return {};
  return cat(op_name(op), " '", printable(proposal.name),
             "' is not supported with Join at this time: ", joined,
             " joined before it; only allreduce and barrier run without all ranks");
}

// Returns an error for an operation on rows with a scalar; names the lowest rank with a scalar.
std::optional<std::string> scalar(const Proposal& proposal) {
  for (const Variant& variant : proposal.variants) {
    const Request& request = variant.request;
    if (!traits_of(request.op).makes_outputs) continue;
    for (size_t i = 0; i < request.tensors.size(); ++i) {
      if (!request.tensors[i].shape.empty()) continue;
      return cat(op_name(request.op), " '", printable(proposal.name), "': a rank-zero tensor",
                 member(request, i), " on rank ", variant.rank,
                 "; a scalar has no rows: give it the shape [1]");
    }
  }
  return {};
}

// Returns an error for a factor that is not finite; names the lowest rank with such a factor.
std::optional<std::string> factors(const Proposal& proposal) {
  for (const Variant& variant : proposal.variants) {
    const Request& request = variant.request;
    const bool is_before = !std::isfinite(request.prescale);
    if (!reduces(request.op) || (!is_before && std::isfinite(request.postscale))) continue;
    return cat(op_name(request.op), " '", printable(proposal.name), "': its ",
               is_before ? "prescale" : "postscale", " factor is ",
               is_before ? request.prescale : request.postscale, " on rank ", variant.rank,
               "; a factor must be a finite number");
  }
  return {};
}

// Compares the variants of the proposal. If ranks differ, the proposal has the variants of two ranks.
template <typename Look>
std::optional<std::string> compare(const Proposal& proposal, const Look& look) {
  const auto& variants = proposal.variants;
  for (size_t i = 1; i < variants.size(); ++i) {
    if (auto sentence = look({proposal.name, variants[0], variants[i]})) return sentence;
  }
  return {};
}

// Returns whether `one`, not `other`, represents two agreeing variants. The variant that alone decides on the device
// represents both; otherwise, the variant of the lower rank does.
bool stands_for(const Variant& one, const Variant& other) {
  const bool decides = one.request.device != kStagedDevice;
  return decides == (other.request.device != kStagedDevice) ? one.rank < other.rank : decides;
}

}  // namespace

std::optional<std::string> disagreement(const std::string& name, const RankRequest& a,
                                        const RankRequest& b) {
  const RequestPair pair{name, a, b};
  auto sentence = terms(pair);
  return sentence ? sentence : places(pair);
}

Status check_rows(std::string_view name, const Request& request, std::span<const RankRows> rows,
                  std::span<const int32_t> members) {
  if (!has_rank_rows(request.op)) return {};
  const bool to_each = traits_of(request.op).row_counts == RowCounts::kPerRank;
  const size_t wanted = to_each ? members.size() : request.tensors.size();
  bool whole = rows.size() == members.size();
  for (size_t i = 0; whole && i < rows.size(); ++i) {
    whole = rows[i].rank == members[i] && rows[i].rows.size() == wanted;
  }
  if (!whole) {
    return internal_error(
        cat("the rows that the ranks bring to '", printable(name), "' did not all arrive"));
  }
  bool too_large = false;
  for (size_t tensor = 0; tensor < request.tensors.size(); ++tensor) {
    const TensorSpec& spec = request.tensors[tensor];
    int64_t sum = 0;
    for (const RankRows& one : rows) {
      for (size_t i = to_each ? 0 : tensor; i < (to_each ? wanted : tensor + 1); ++i) {
        too_large |= __builtin_add_overflow(sum, one.rows[i], &sum);
      }
    }
    const auto size = static_cast<int64_t>(dtype_size(spec.dtype));
    too_large |= __builtin_mul_overflow(sum, spec.row(), &sum);
    too_large |= __builtin_mul_overflow(sum, size, &sum);
  }
  if (!too_large) return {};
  return invalid_argument(cat("the rows that the ranks bring to '", printable(name),
                              "' are more than memory can hold"));
}

void merge(Proposal* into, Proposal&& other) {
  if (into->variants.empty()) {
    *into = std::move(other);
    return;
  }
  auto& variants = into->variants;
  for (Variant& variant : other.variants) {
    const auto same = std::find_if(variants.begin(), variants.end(), [&](const Variant& known) {
      return !disagreement(into->name, known, variant);
    });
    if (same == variants.end()) {
      variants.push_back(std::move(variant));
    } else if (stands_for(variant, *same)) {
      *same = std::move(variant);
    }
  }
  std::sort(variants.begin(), variants.end(),
            [](const Variant& a, const Variant& b) { return a.rank < b.rank; });
  if (variants.size() > kVariantsKept) variants.resize(kVariantsKept);
  into->askers += other.askers;
  for (RankRows& rows : other.rows) into->rows.push_back(std::move(rows));
}

Status verdict(const Proposal& proposal, std::string_view joined) {
  if (proposal.variants.empty()) return internal_error("a name was proposed without a request");
  std::optional<std::string> sentence = factors(proposal);
  for (const Variant& variant : proposal.variants) {
    if (!sentence) sentence = refusal({variant.rank, variant.request});
  }
  if (!sentence) sentence = compare(proposal, terms);
  if (!sentence) sentence = absence(proposal, joined);
  if (!sentence) sentence = scalar(proposal);
  if (!sentence) sentence = compare(proposal, places);
  return sentence ? invalid_argument(*std::move(sentence)) : Status();
}

}  // namespace hvd::runtime
