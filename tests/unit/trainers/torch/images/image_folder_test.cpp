// A folder of images as a data set, and its samples after a resume.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/memory_link.hpp"
#include "tests/unit/trainers/torch/images/image_data.hpp"
#include "troupe/trainers/torch/data/data_loader.hpp"
#include "troupe/trainers/torch/images/image_file.hpp"
#include "troupe/trainers/torch/images/image_folder.hpp"
#include "troupe/trainers/torch/images/image_transforms.hpp"

namespace troupe::internal::test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

/// Two classes with three images, and things that are none.
class image_folder_test : public testing::Test {
protected:
  image_folder_test() {
    for (auto name : {"dog", "cat/more"})
      fs::create_directories(root_ / name);
    fs::copy_file(data / "colors.png", root_ / "dog/b.PNG");
    fs::copy_file(data / "colors.jpg", root_ / "dog/a.jpeg");
    fs::copy_file(data / "gray.jpg", root_ / "cat/more/c.jpg");
    write_bytes(root_ / "cat/notes.txt", "none");
    write_bytes(root_ / "labels.csv", "none");
  }

  test::temporary_folder root_;
};

train_context make_context(int rank = 0, int world_size = 1) {
  return {{.rank = rank, .world_size = world_size},
          test::make_memory_link(),
          std::nullopt};
}

} // namespace

TEST_F(image_folder_test, numbers_classes_by_name_and_samples_by_path) {
  const image_folder images{root_.path()};
  EXPECT_THAT(images.classes(), ElementsAre("cat", "dog"));
  ASSERT_EQ(images.size(), 3);
  EXPECT_EQ(images.path(0), root_ / "cat/more/c.jpg");
  EXPECT_EQ(images.path(1), root_ / "dog/a.jpeg");
  EXPECT_EQ(images.path(2), root_ / "dog/b.PNG");
  auto [pixels, label] = images.get(2, random_of(2));
  EXPECT_EQ(label, 1);
  EXPECT_EQ(difference(pixels, rows_of(data / "colors.png.rgb", 14, 21)), 0);
  EXPECT_EQ(images.get(0, random_of(0)).second, 0);
}

TEST_F(image_folder_test, decodes_its_files_at_the_size_asked_for) {
  const image_folder images{root_.path(), resize(4), {.decode_at_least = 4}};
  EXPECT_TRUE(
    images.get(1, random_of(1))
      .first.equal(read_image(data / "colors.jpg", {.decode_at_least = 4})));
  EXPECT_EQ(images.get(2, random_of(2)).first.size(1), 4); // the PNG, resized
}

TEST_F(image_folder_test, names_a_folder_without_images) {
  fs::create_directory(root_ / "empty");
  EXPECT_THAT(
    failure_of([&] { image_folder{root_.path()}; }),
    AllOf(HasSubstr((root_ / "empty").string()), HasSubstr("has no images")));
  EXPECT_THAT(failure_of([&] { image_folder{root_ / "dog"}; }),
              HasSubstr("has no folders"));
  EXPECT_THAT(failure_of([&] { image_folder{root_ / "none"}; }),
              HasSubstr((root_ / "none").string()));
}

TEST_F(image_folder_test, names_a_link_to_a_picture_that_is_missing) {
  fs::create_symlink(root_ / "dog/a.jpeg", root_ / "cat/d.jpg");
  EXPECT_EQ(image_folder{root_.path()}.size(), 4);
  fs::create_symlink("gone.png", root_ / "cat/e.png");
  EXPECT_THAT(failure_of([&] { image_folder{root_.path()}; }),
              HasSubstr((root_ / "cat/e.png").string() + " leads to no file"));
}

TEST_F(image_folder_test, names_sample_and_path_of_a_file_that_is_damaged) {
  auto jpeg = bytes_of(root_ / "dog/a.jpeg");
  write_bytes(root_ / "dog/a.jpeg", jpeg.substr(0, 300));
  auto context = make_context();
  for (int workers : {0, 2}) {
    auto loader = prepare_data_loader(context, image_folder{root_.path()},
                                      {.workers = workers});
    EXPECT_THAT(
      failure_of([&] {
        for ([[maybe_unused]] auto& batch : loader) {
        }
      }),
      AllOf(HasSubstr("sample 1"), HasSubstr((root_ / "dog/a.jpeg").string())));
  }
}

TEST_F(image_folder_test,
       gives_the_same_pictures_after_a_resume_and_to_others) {
  const image_folder images{root_.path(),
                            {random_resized_crop(8), random_horizontal_flip(),
                             to_float(),
                             normalize({0.5, 0.5, 0.5}, {0.2, 0.2, 0.2})}};
  data_loader_options options{.shuffle = true, .seed = 3};
  auto all_of = [&](int rank, int ranks, int workers,
                    const sampler_state* from = nullptr) {
    auto context = make_context(rank, ranks);
    options.workers = workers;
    options.tail = tail::no_padding;
    auto loader = prepare_data_loader(context, images, options);
    if (from)
      loader.load_state(*from);
    loader.set_epoch(2);
    std::vector<at::Tensor> result;
    for (auto& [image, label] : loader)
      result.push_back(image);
    return result;
  };
  auto whole = all_of(0, 1, 0);
  ASSERT_EQ(whole.size(), 3u);
  EXPECT_FALSE(whole[0].equal(whole[1]));
  auto threaded = all_of(0, 1, 2);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(threaded[i].equal(whole[i]));
  auto first = all_of(0, 2, 0);
  auto second = all_of(1, 2, 0);
  EXPECT_TRUE(first[0].equal(whole[0]));
  EXPECT_TRUE(second[0].equal(whole[1]));
  EXPECT_TRUE(first[1].equal(whole[2]));
  const sampler_state after_two{3, 2, 2};
  auto rest = all_of(0, 1, 0, &after_two);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_TRUE(rest[0].equal(whole[2]));
}

} // namespace troupe::internal::test
