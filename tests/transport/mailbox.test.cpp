#include "transport/mailbox.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <random>

namespace troupe::transport {
namespace {

struct Letter {
  int number = 0;
  std::int64_t copied_bytes() const { return 10; }
};

constexpr Link kAnna{1, 1}, kBob{2, 1};

Tag tag(std::uint64_t index, EpochNumber epoch = 1) {
  return make_tag(epoch, TagKind::user, 0, index);
}
Posted receive_of(const Tag& wanted, std::size_t bytes = 5) {
  return {wanted, {nullptr, bytes}, Completion::pending()};
}

TEST_CASE("receives and messages meet in order, per link and tag", "[transport]") {
  Mailbox<Letter> mailbox;
  for (const int number : {1, 2}) mailbox.keep(kAnna, tag(1), Letter{number});
  mailbox.keep(kBob, tag(1), Letter{3});
  mailbox.keep(kAnna, tag(2), Letter{4});
  CHECK(mailbox.copied_bytes() == 40);
  auto receive = receive_of(tag(1));
  CHECK(mailbox.post(kAnna, receive)->number == 1);
  CHECK(mailbox.post(kAnna, receive)->number == 2);
  CHECK(mailbox.post(kBob, receive)->number == 3);
  CHECK_FALSE(mailbox.post(kBob, receive));  // Nothing more: the receive waits.
  CHECK(mailbox.match(kBob, tag(1)));
  CHECK_FALSE(mailbox.match(kBob, tag(1)));
  CHECK(mailbox.copied_bytes() == 10);
}

TEST_CASE("only the withdrawn receive leaves", "[transport]") {
  Mailbox<Letter> mailbox;
  auto first = receive_of(tag(1)), second = receive_of(tag(1));
  const auto withdrawn = first.completion, kept = second.completion;
  mailbox.post(kAnna, first);
  mailbox.post(kAnna, second);
  CHECK(mailbox.withdraw(kAnna, tag(1), withdrawn)->completion == withdrawn);
  CHECK_FALSE(mailbox.withdraw(kAnna, tag(1), withdrawn));
  CHECK_FALSE(mailbox.withdraw(kAnna, tag(9), kept));
  CHECK(mailbox.match(kAnna, tag(1))->completion == kept);
}

TEST_CASE("a link or an old epoch is taken out whole, and nothing else", "[transport]") {
  Mailbox<Letter> mailbox;
  auto receive = receive_of(tag(1, 1), 100);
  mailbox.post(kAnna, receive);
  receive = receive_of(tag(1, 2), 30);
  mailbox.post(kAnna, receive);
  mailbox.keep(kBob, tag(1, 1), Letter{1});
  mailbox.keep(kBob, tag(1, 2), Letter{2});
  const auto old = mailbox.take_older_than(2);
  CHECK(old.receive_bytes() == 100);
  REQUIRE(old.messages.size() == 1);
  CHECK(old.messages[0].number == 1);
  const auto anna = mailbox.take_link(kAnna);
  CHECK(anna.receive_bytes() == 30);
  CHECK(anna.messages.empty());
  CHECK(mailbox.take_messages_older_than(kBob, 2).empty());
  CHECK(mailbox.take_messages_older_than(kBob, 3).size() == 1);
  CHECK(mailbox.copied_bytes() == 0);
}

TEST_CASE("every message meets exactly one receive, in any order of arrival",
          "[transport][property]") {
  std::mt19937 random(GENERATE(Catch::Generators::range(0u, 20u)));
  Mailbox<Letter> mailbox;
  std::vector<std::pair<std::uint64_t, bool>> events;
  for (std::uint64_t index = 0; index < 50; ++index) {
    for (const bool is_message : {true, false}) events.emplace_back(index % 7, is_message);
  }
  std::ranges::shuffle(events, random);
  int met = 0;
  for (const auto& [index, is_message] : events) {
    if (!is_message) {
      auto receive = receive_of(tag(index));
      met += mailbox.post(kAnna, receive).has_value();
    } else if (mailbox.match(kAnna, tag(index))) {
      ++met;
    } else {
      mailbox.keep(kAnna, tag(index), Letter{});
    }
  }
  CHECK(met == 50);
  CHECK(mailbox.copied_bytes() == 0);
  const auto rest = mailbox.take_all();
  CHECK(rest.receives.empty());
  CHECK(rest.messages.empty());
}

}  // namespace
}  // namespace troupe::transport
