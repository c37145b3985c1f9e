#include "runtime/data/reading/byte_tokenizer.hpp"

#include <array>
#include <cctype>

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

std::string_view ByteTokenizer::find_special_name(std::string_view text) {
  constexpr std::size_t kLengthMax = 40;
  const auto is_word = [](char c) {
    return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0;
  };
  for (auto at = text.find("<|"); at != text.npos; at = text.find("<|", at + 1)) {
    auto end = at + 2;
    while (end < text.size() && end - at < kLengthMax && is_word(text[end])) ++end;
    if (end > at + 2 && text.substr(end).starts_with("|>")) return text.substr(at, end + 2 - at);
  }
  return {};
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
