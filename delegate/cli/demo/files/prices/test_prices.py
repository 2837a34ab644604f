import unittest

from prices import discounted


class DiscountTest(unittest.TestCase):
    def test_no_discount_changes_nothing(self):
        self.assertEqual(discounted(1999, 0), 1999)

    def test_half_a_cent_is_rounded_up(self):
        self.assertEqual(discounted(1050, 15), 893)

    def test_more_than_everything_cannot_be_taken_off(self):
        with self.assertRaises(ValueError):
            discounted(1000, 120)


if __name__ == "__main__":
    unittest.main()
