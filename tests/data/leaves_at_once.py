"""A check's driver that never reports: takes the driver's flags and leaves."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--file", type=str, default="", help="ignored")
parser.add_argument("--function", type=str, default="", help="ignored")
parser.add_argument("--exercise", type=str, default="", help="ignored")
parser.parse_args()
