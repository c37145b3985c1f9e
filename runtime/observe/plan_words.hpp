// A layout and its stages in a few words, for logs and reports.
//
// Pure.

#pragma once

#include <set>
#include <string>

#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::observe {

/// `2 pipelines of 3 and 2 stages`; where module groups have numbers of replicas of their own,
/// `3 replicas of vision+audio and 2 of llm in 6 stages`.
std::string layout_words(const ParallelPlan& plan);

/// What a user should know of a layout's sums: where NCCL chooses their order, that bits depend on
/// it, and in how many groups. Empty where they follow from the layout.
std::string sum_words(const ParallelPlan& plan);

/// The runs of a stage: `vision 0-5, vision_projector, llm 0-1`.
std::string stage_words(const ParallelPlan& plan, const Stage& stage);

/// Layers in the same words, in the order of the model.
std::string layer_words(const ModelGraph& model, const std::set<LayerId>& layers);

}  // namespace troupe::observe
