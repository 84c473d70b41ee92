#include "troupe/runtime/process/function_address.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/unit/runtime/process/rank_commands.hpp"
#include "tests/unit/runtime/process/started_rank.hpp"
#include "troupe/runtime/process/spawner.hpp"

using namespace troupe;
using namespace troupe::internal;
using testing::HasSubstr;

namespace {

const void* own_function() {
  return reinterpret_cast<const void*>(&test::run_rank_command);
}

} // namespace

TEST(function_address_test, finds_a_function_of_the_program_again) {
  auto address = locate(own_function()).value();
  EXPECT_EQ(address.module, "");
  EXPECT_EQ(address.build_id.size(), 40u); // SHA-1, the linker's default.
  EXPECT_EQ(resolve(address).value(), own_function());
}

TEST(function_address_test, refuses_what_is_not_a_function) {
  int variable = 0;
  auto address = locate(&variable);
  ASSERT_FALSE(address);
  EXPECT_EQ(address.error().code, ec::invalid_config);
}

TEST(function_address_test, names_both_builds_if_they_differ) {
  auto address = locate(own_function()).value();
  auto here = std::exchange(address.build_id, "0123abcd");
  auto fn = resolve(address);
  ASSERT_FALSE(fn);
  EXPECT_EQ(fn.error().code, ec::invalid_config);
  EXPECT_THAT(fn.error().message, HasSubstr("process_test"));
  EXPECT_THAT(fn.error().message, HasSubstr("0123abcd"));
  EXPECT_THAT(fn.error().message, HasSubstr(here));
}

TEST(function_address_test, refuses_an_offset_without_code) {
  auto address = locate(own_function()).value();
  address.offset = std::uint64_t{1} << 40;
  auto fn = resolve(address);
  ASSERT_FALSE(fn);
  EXPECT_EQ(fn.error().code, ec::invalid_config);
}

TEST(function_address_test, names_a_library_that_is_missing) {
  auto fn = resolve({"/no/such/library.so", 16, ""});
  ASSERT_FALSE(fn);
  EXPECT_EQ(fn.error().code, ec::invalid_config);
  EXPECT_THAT(fn.error().message, HasSubstr("/no/such/library.so"));
}

TEST(function_address_test, loads_a_library_that_only_one_process_has) {
  // A part of the C library that nothing here is linked to. The spawner was
  // made before it is loaded.
  void* library = ::dlopen("libBrokenLocale.so.1", RTLD_NOW);
  ASSERT_TRUE(library) << ::dlerror();
  auto address = locate(::dlsym(library, "__ctype_get_mb_cur_max")).value();
  EXPECT_THAT(address.module, HasSubstr("libBrokenLocale"));
  auto end =
    test::run_rank(**spawner(), test::command("resolve " + address.module + "|"
                                              + std::to_string(address.offset)
                                              + "|" + address.build_id));
  EXPECT_EQ(to_string(end), "exited with code 0");
  ::dlclose(library);
}
