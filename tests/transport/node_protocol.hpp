// Text forms of what crosses the pipe between a test and a node in another process.

#pragma once

#include <istream>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/transport/test_node.hpp"

namespace troupe::transport::testing {

inline std::string to_hex(const std::vector<std::byte>& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "x";  // So that no bytes are still a word.
  for (const auto byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

inline std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (std::size_t at = 1; at + 1 < text.size(); at += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(at, 2), nullptr, 16)));
  }
  return bytes;
}

inline std::ostream& operator<<(std::ostream& out, const Tag& tag) {
  return out << tag.epoch << ' ' << static_cast<unsigned>(tag.kind) << ' ' << tag.step << ' '
             << tag.index;
}
inline std::istream& operator>>(std::istream& in, Tag& tag) {
  unsigned kind = 0;
  in >> tag.epoch >> kind >> tag.step >> tag.index;
  tag.kind = static_cast<TagKind>(kind);
  return in;
}

inline std::ostream& operator<<(std::ostream& out, const CollectiveCall& call) {
  out << call.kind << ' ' << call.members.size();
  for (const auto member : call.members) out << ' ' << member;
  return out << ' ' << call.rank << ' ' << call.group_id << ' '
             << static_cast<unsigned>(call.scalar) << ' ' << call.count << ' ' << call.seed << ' '
             << call.deadline_ms << ' ' << call.delayed;
}
inline std::istream& operator>>(std::istream& in, CollectiveCall& call) {
  std::size_t members = 0;
  unsigned scalar = 0;
  in >> call.kind >> members;
  call.members.resize(members);
  for (auto& member : call.members) in >> member;
  in >> call.rank >> call.group_id >> scalar >> call.count >> call.seed >> call.deadline_ms >>
      call.delayed;
  call.scalar = static_cast<Scalar>(scalar);
  return in;
}

/// "1 0 digest" or "0 code 0 message".
inline std::string to_text(const Outcome& outcome) {
  std::ostringstream out;
  out << outcome.ok << ' ' << static_cast<unsigned>(outcome.code) << ' ' << outcome.digest << ' '
      << outcome.message;
  return out.str();
}
inline Outcome to_outcome(const std::string& text) {
  std::istringstream in(text);
  Outcome outcome;
  unsigned code = 0;
  in >> outcome.ok >> code >> outcome.digest;
  outcome.code = static_cast<Errc>(code);
  std::getline(in >> std::ws, outcome.message);
  return outcome;
}

}  // namespace troupe::transport::testing
