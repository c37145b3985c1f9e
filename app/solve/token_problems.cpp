// Token blocks to devices of a context-parallel group.

#include "app/solve/balancing_problems.hpp"
#include "balancer/tokens/token_blocks.hpp"

namespace troupe::app {

namespace {

constexpr std::int64_t kTokensMax = std::int64_t{1} << 40;

std::vector<TokenSample> read_token_samples(Reader& in) {
  std::vector<TokenSample> samples;
  const std::size_t count = in.array("samples").size();
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    Reader sample = in.element("samples", i);
    TokenSample read;
    read.tokens = sample.integer("tokens", 0, kTokensMax);
    if (sample.has("spans"))
      for (const auto& span : read_rows(sample, "spans", 0, kTokensMax)) {
        if (span.size() == 2) {
          read.spans.push_back({span[0], span[1]});
        } else {
          sample.fail("spans", "expected [[begin, end]...]");
        }
      }
    in.absorb(sample);
    samples.push_back(std::move(read));
  }
  return samples;
}

Result<Json> solve_token_blocks(const Json& input) {
  Reader in(input, "input");
  in.only({"samples", "block", "tile", "devices", "method", "time_limit_ms"});
  const auto samples = read_token_samples(in);
  balancer::TokenBlockOptions options;
  options.shape.block = in.integer_or("block", 128, 1, kTokensMax);
  options.shape.tile = in.integer_or("tile", 32, 1, kTokensMax);
  options.device_count = static_cast<std::int32_t>(in.integer("devices", 1, 1'000'000));
  options.time_limit_ms = in.number_or("time_limit_ms", 1000, kTimeMin, kTimeMax);
  const auto method = in.text_or("method", "lpt");
  if (!in.ok()) return in.error();
  const auto known = balancer::token_block_method_from(method);
  if (!known.ok()) return known.error();
  options.method = known.value();
  const auto [blocks, elapsed_ms] =
      timed([&] { return balancer::assign_token_blocks(samples, options); });
  if (!blocks.ok()) return blocks.error();
  return Json{
      {"owner", blocks.value().owner}, {"loads", blocks.value().loads}, {"compute_ms", elapsed_ms}};
}

}  // namespace

std::vector<Problem> token_problems() {
  return {{"token-blocks", "attention blocks over context-parallel devices (Cornstarch 3.3.2)",
           "samples: [{tokens: integer >= 0, spans: [[begin, end]...]?}...], spans are image or\n"
           "  audio tokens of the sample, ascending\n"
           "block, tile: integer >= 1, default 128 and 32 tokens\n"
           "devices: integer >= 1\n"
           "method: `lpt` (default), `ilp`, `round-robin` or `zigzag`\n"
           "time_limit_ms: number > 0, default 1000, for `ilp`",
           solve_token_blocks}};
}

}  // namespace troupe::app
