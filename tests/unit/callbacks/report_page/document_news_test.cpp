#include "troupe/callbacks/report_page/document_news.hpp"

#include <gtest/gtest.h>

#include "troupe/runtime/storage/json.hpp"

namespace troupe::internal::test {

namespace {

using json::document;

/// As the page does it; texts of these tests are ASCII where they are kept.
document changed(document old, const document& news) {
  if (news.contains("is"))
    return news["is"];
  if (old.is_object()) {
    for (auto& name : news.value("gone", document::array()))
      old.erase(name.get<std::string>());
    auto fields = news.value("fields", document::object());
    for (auto& [name, x] : fields.items())
      old[name] = changed(old[name], x);
    return old;
  }
  auto skip = news["skip"].get<std::size_t>();
  auto keep = news["keep"].get<std::size_t>();
  if (old.is_string())
    return old.get<std::string>().substr(skip, keep)
           + news["add"].get<std::string>();
  auto result = document::array();
  for (std::size_t i = 0; i < keep; ++i)
    result.push_back(old[skip + i]);
  auto items = news.value("items", document::object());
  for (auto& [i, x] : items.items())
    result[std::stoul(i)] = changed(result[std::stoul(i)], x);
  for (auto& x : news["add"])
    result.push_back(x);
  return result;
}

/// The news from *old* to *next*, which make *next* of it; null: none.
document news_between(const document& old, const document& next) {
  auto news = sent_document{old.dump()}.news_until(sent_document{next.dump()});
  if (!news)
    return nullptr;
  auto result = document::parse(*news);
  EXPECT_EQ(changed(old, result), next);
  return result;
}

document numbers(int first, int last) {
  auto result = document::array();
  for (auto i = first; i <= last; ++i)
    result.push_back(i + 0.5);
  return result;
}

} // namespace

TEST(document_news_test, a_list_that_grows_is_sent_from_where_it_ended) {
  document old{{"state", "running"}, {"curves", {{{"mean", numbers(1, 50)}}}}};
  auto next = old;
  next["curves"][0]["mean"].push_back(7);
  EXPECT_EQ(news_between(old, next).dump(),
            R"({"fields":{"curves":{"add":[],"items":{"0":{"fields":{"mean":)"
            R"({"add":[7],"keep":50,"skip":0}}}},"keep":1,"skip":0}}})");
}

TEST(document_news_test, only_the_elements_that_changed_are_sent) {
  document old{{"x", numbers(1, 50)}};
  auto next = old;
  next["x"][49] = 3; // a point that stands for one more report
  EXPECT_EQ(
    news_between(old, next).dump(),
    R"({"fields":{"x":{"add":[],"items":{"49":{"is":3}},"keep":50,"skip":0}}})");
}

TEST(document_news_test, a_window_that_moves_loses_its_first_elements) {
  EXPECT_EQ(news_between(numbers(1, 50), numbers(3, 51)).dump(),
            R"({"add":[51.5],"keep":48,"skip":2})");
}

TEST(document_news_test, a_list_with_other_numbers_is_sent_whole) {
  document old{{"x", numbers(1, 50)}, {"y", numbers(1, 50)}};
  auto next = old;
  next["x"] = numbers(101, 130);
  EXPECT_TRUE(news_between(old, next)["fields"]["x"].contains("is"));
}

TEST(document_news_test, a_shorter_list_keeps_what_it_has) {
  EXPECT_EQ(news_between(numbers(1, 50), numbers(1, 40)).dump(),
            R"({"add":[],"keep":40,"skip":0})");
}

TEST(document_news_test, fields_come_and_go) {
  document old{{"kept", numbers(1, 50)}, {"min", 1}, {"error", ""}};
  document next{{"kept", numbers(1, 50)}, {"max", {1, 2}}, {"error", "why"}};
  EXPECT_EQ(
    news_between(old, next).dump(),
    R"({"fields":{"error":{"is":"why"},"max":{"is":[1,2]}},"gone":["min"]})");
}

TEST(document_news_test, of_a_text_its_new_end_is_sent) {
  std::string lines;
  for (int i = 10; i < 100; ++i)
    lines += "this is line " + std::to_string(i) + '\n';
  EXPECT_EQ(news_between(lines, lines + "and one more").dump(),
            R"({"add":"and one more","keep":1440,"skip":0})");
  EXPECT_EQ(news_between(lines, lines.substr(160) + "and one more").dump(),
            R"({"add":"and one more","keep":1280,"skip":160})");
}

TEST(document_news_test, texts_are_counted_as_a_browser_does) {
  // One unit, and two: U+00FC and U+1F600. The second line differs in the last
  // byte of a character.
  const std::string line(100, '-'), u = "\xC3\xBC", face = "\xF0\x9F\x98\x80";
  auto old = u + face + line + "\xC3\xBC";
  auto next = line + "\xC3\xA4" + line.substr(60);
  auto news = sent_document{document(old).dump()}.news_until(
    sent_document{document(next).dump()});
  EXPECT_EQ(news,
            R"({"add":")" + next.substr(100) + R"(","keep":100,"skip":3})");
}

TEST(document_news_test, news_as_long_as_the_document_are_none) {
  EXPECT_TRUE(news_between({{"a", 1}}, {{"a", 2}}).is_null());
  EXPECT_TRUE(news_between(numbers(1, 50), {{"a", 2}}).is_null());
}

TEST(document_news_test, invalid_json_has_no_news) {
  EXPECT_FALSE(
    sent_document{"{"}.news_until(sent_document{numbers(1, 9).dump()}));
  EXPECT_FALSE(
    sent_document{numbers(1, 9).dump()}.news_until(sent_document{"{"}));
}

} // namespace troupe::internal::test
