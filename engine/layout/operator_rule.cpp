#include "engine/layout/operator_rule.hpp"

#include <string>

namespace troupe::engine {

std::optional<scheduler::LayoutReason> operator_rule(const job::Job& job) {
  if (job.cluster.device == "cpu") return std::nullopt;
  if (!job.train.deterministic)
    return scheduler::LayoutReason{"any operators",
                                   "train.deterministic = false: bits may differ from run to run, "
                                   "in what is no kernel of ours"};
  // Packs without a mask go there, in bf16 alone (kernels/packed_attention).
  const bool has_flash = job.cluster.device == "cuda" && job.train.dtype == Dtype::bf16;
  std::string why = "train.deterministic: an operator that has no fixed order ends the job";
  if (has_flash)
    why +=
        ", and FlashAttention's backward takes the form of which its authors say that it is "
        "slightly slower and takes more memory (not measured here)";
  return scheduler::LayoutReason{"deterministic operators", why + "; false allows others"};
}

}  // namespace troupe::engine
