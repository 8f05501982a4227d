#include "ops/kernels/philox.h"

#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class PhiloxTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(PhiloxTest);

std::vector<uint32_t> Words(const PhiloxWords& block) {
  return std::vector<uint32_t>(block.words, block.words + 4);
}

// The known answers of the authors' own implementation.
TEST(PhiloxBlockTest, GivesTheKnownAnswers) {
  EXPECT_EQ(
      Words(PhiloxBlock({0, 0}, 0)),
      (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      Words(PhiloxBlock({~uint64_t{0}, ~uint64_t{0}}, ~uint64_t{0})),
      (std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      Words(PhiloxBlock({0x299f31d0a4093822, 0x0370734413198a2e},
                        0x85a308d3243f6a88)),
      (std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxBlockTest, HalvesAreTheWordsFromTheLowEnd) {
  const PhiloxWords block = {{0x00010000, 0x00030002, 0x00050004, 0x00070006}};
  for (int half = 0; half < 8; ++half) {
    EXPECT_EQ(PhiloxHalf(block, half), static_cast<uint32_t>(half));
  }
}

TEST_P(PhiloxTest, ManyBlocksAreTheSameAsOneByOne) {
  const Seed seed = {0x0123456789abcdef, 0xfedcba9876543210};
  // The last two pass from 32 bits to 33, and from 64 to 0.
  for (const uint64_t first :
       {uint64_t{0}, uint64_t{7}, uint64_t{0xfffffffd}, ~uint64_t{0} - 2}) {
    for (int64_t blocks = 0; blocks <= 40; ++blocks) {
      std::vector<uint32_t> expected;
      for (int64_t i = 0; i < blocks; ++i) {
        for (const uint32_t word : Words(PhiloxBlock(seed, first + i))) {
          expected.push_back(word);
        }
      }
      Guarded<uint32_t> words(4 * blocks, blocks % 4);
      PhiloxFill(seed, first, blocks, words.data());
      ASSERT_EQ(words.Values(), expected) << first << " " << blocks;
      ASSERT_TRUE(words.GuardsAreIntact());
    }
  }
}

}  // namespace
}  // namespace tf_gc::kernels
