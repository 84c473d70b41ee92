// Memory that messages share with processes of their host.

#include "troupe/actors/protocol/shared_bytes.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include <gtest/gtest.h>

#include "tests/support/shared_descriptors.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

namespace {

constexpr std::size_t block_size = 64 * 1024;

shared_bytes block_of(std::size_t i) {
  std::vector<std::byte> bytes(block_size, static_cast<std::byte>(i));
  return shared_bytes::copy_of(bytes);
}

std::vector<shared_bytes> blocks(std::size_t count) {
  std::vector<shared_bytes> result;
  for (std::size_t i = 0; i < count; ++i)
    result.push_back(block_of(i));
  return result;
}

/// As *x* travels to a process of this host.
caf::byte_buffer near_form(const shared_bytes& x,
                           std::vector<shared_hold>* holds = nullptr) {
  near_scope scope{true, holds};
  caf::byte_buffer result;
  auto sink = serializer_to(result);
  EXPECT_TRUE(x.save(sink));
  return result;
}

std::optional<shared_bytes> loaded(const caf::byte_buffer& bytes) {
  shared_bytes result;
  auto source = deserializer_of(bytes);
  if (!result.load(source))
    return std::nullopt;
  return result;
}

bool is_shared(const caf::byte_buffer& x) {
  return x.size() < block_size;
}

} // namespace

TEST(shared_bytes_test, has_a_descriptor_while_someone_holds_it) {
  auto all = blocks(200);
  auto kept = shared_descriptors();
  EXPECT_EQ(kept, 128);
  std::vector<shared_hold> holds;
  auto form = near_form(all.back(), &holds);
  EXPECT_TRUE(is_shared(form));
  EXPECT_EQ(near_form(all.back()), form); // when it leaves
  EXPECT_EQ(shared_descriptors(), kept + 1);
  holds.clear();
  EXPECT_EQ(shared_descriptors(), kept);
  EXPECT_FALSE(is_shared(near_form(all.back())));
  all.clear();
  EXPECT_EQ(shared_descriptors(), 0);
}

TEST(shared_bytes_test, travels_with_the_message_where_no_descriptor_is_left) {
  auto all = blocks(300);
  std::vector<shared_hold> holds;
  auto shared = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto form = near_form(all[i], &holds);
    shared += is_shared(form);
    auto x = loaded(form);
    ASSERT_TRUE(x) << i;
    EXPECT_TRUE(std::ranges::equal(x->bytes(), all[i].bytes())) << i;
  }
  EXPECT_EQ(shared, 256);
  EXPECT_EQ(shared_descriptors(), 256);
}

TEST(shared_bytes_test, travels_with_the_message_of_a_process_that_hides) {
  auto x = block_of(7);
  std::vector<shared_hold> holds;
  EXPECT_TRUE(is_shared(near_form(x, &holds)));
  ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 0), 0);
  auto hidden = near_form(x, &holds);
  ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 1), 0);
  EXPECT_FALSE(is_shared(hidden));
  auto received = loaded(hidden);
  ASSERT_TRUE(received);
  EXPECT_TRUE(std::ranges::equal(received->bytes(), x.bytes()));
}

TEST(shared_bytes_test, is_never_read_from_a_file_that_has_its_number_by_now) {
  auto all = blocks(129);
  unique_fd next{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  auto number = next.get();
  next.reset();
  std::vector<shared_hold> holds;
  auto form = near_form(all.back(), &holds);
  ASSERT_TRUE(is_shared(form));
  EXPECT_TRUE(loaded(form));
  holds.clear();
  EXPECT_FALSE(loaded(form));
  unique_fd other{::memfd_create("of-another-message", MFD_CLOEXEC)};
  ASSERT_EQ(other.get(), number);
  ASSERT_EQ(::ftruncate(other.get(), block_size), 0);
  EXPECT_FALSE(loaded(form));
}

} // namespace troupe::internal::test
