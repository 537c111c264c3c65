"""Sender-outage detection: is it many receivers that fail, or this sender that is cut off?"""
