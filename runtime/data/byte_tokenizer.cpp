#include "runtime/data/byte_tokenizer.hpp"

#include <array>

namespace troupe::data {
namespace {

constexpr std::array<std::string_view, 8> kSpecialNames{"<|begin|>",     "<|system|>", "<|user|>",
                                                        "<|assistant|>", "<|end|>",    "<|image|>",
                                                        "<|audio|>",     "<|pad|>"};

std::string name_of(TokenId id) {
  const auto place = static_cast<std::size_t>(id - ByteTokenizer::kBegin);
  if (id >= ByteTokenizer::kBegin && place < kSpecialNames.size())
    return std::string(kSpecialNames[place]);
  return "<|id " + std::to_string(id) + "|>";
}

}  // namespace

void ByteTokenizer::encode(std::string_view text, std::vector<TokenId>& out) {
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
}

std::string ByteTokenizer::decode(std::span<const TokenId> ids) {
  std::string text;
  for (const TokenId id : ids) {
    if (id >= 0 && id < 256)
      text += static_cast<char>(id);
    else
      text += name_of(id);
  }
  return text;
}

}  // namespace troupe::data
