// The tiny job with an encoder of each medium, so that there is a module of every family.

#pragma once

#include "models/whisper/family.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {

/// An audio encoder beside the vision encoder, in no layout yet. It has no data.
inline job::Job tiny_job_with_audio() {
  job::Job job = tiny_job();
  ModuleConfig audio{"audio", ModuleKind::encoder, "whisper", "audio_projector", false, {}, 0.02,
                     {}};
  audio.config = models::AudioConfig{
      .encoder_layers = 1, .d_model = 16, .encoder_attention_heads = 2, .encoder_ffn_dim = 24};
  ModuleConfig projector{
      "audio_projector", ModuleKind::projector, "mlp", "llm", false, {}, 0.02, {}};
  projector.config = models::ProjectorConfig{};
  job.modules.insert(job.modules.begin(), {audio, projector});
  return job;
}

}  // namespace troupe::engine
